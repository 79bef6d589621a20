import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as nn_functional
from safetensors.torch import save_file
from torch import Tensor
from transformers import T5Config as TheirConfig
from transformers import T5ForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5LayerNorm

from clearformer.checkpoint import load_tensors, weights_of
from clearformer.data.batch import Batch
from clearformer.errors import CheckpointError
from clearformer.generation.decode import sample
from clearformer.generation.sampling import greedy
from clearformer.interop.huggingface.t5 import export_config, export_folder, import_config, import_folder
from clearformer.models.t5 import T5, T5Config

from ...bounds import assert_alike
from .conftest import read, streams

B, T, S, H, K, D, F, V = 2, 7, 19, 3, 5, 11, 13, 17
PAD, EOS = 0, 1
VERSIONS: dict[str, dict[str, Any]] = {
    "1.0": {},
    "1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
}
every_version = pytest.mark.parametrize("version", VERSIONS)


def theirs_of(version: str = "1.0", **fields: Any) -> T5ForConditionalGeneration:
    """A T5 with every parameter random; one of version 1.1 has a head of its own. S passes the widest bucket."""
    torch.manual_seed(0)
    config = TheirConfig(
        **{
            "vocab_size": V, "d_model": D, "d_kv": K, "d_ff": F, "num_layers": 2, "num_decoder_layers": 3,
            "num_heads": H, "relative_attention_num_buckets": 6, "relative_attention_max_distance": 7,
            "dropout_rate": 0.2, "decoder_start_token_id": PAD, **VERSIONS[version], **fields,
        }
    )  # fmt: skip
    model = T5ForConditionalGeneration(config).eval()
    if version == "1.1":
        model.lm_head.weight = torch.nn.Parameter(torch.empty(V, D))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 1.0 if parameter.dim() == 1 else 0.0, 0.4)
    return model


def assert_same(ours: T5, theirs: T5ForConditionalGeneration) -> None:
    mask = torch.arange(S) < torch.tensor([[S], [4]])
    source, target = torch.randint(2, V, (B, S)).masked_fill(~mask, PAD), torch.randint(2, V, (B, T))
    out = theirs(source, mask.long(), decoder_input_ids=target, output_hidden_states=True)

    def run(model: T5) -> list[Tensor]:
        *_, memory = states = streams(model.encoder, lambda: model.encode(source, mask))
        written = streams(model.decoder, lambda: model.decode(target, memory, mask))
        return [*(state[mask] for state in states), *written, model(Batch(source, mask, target, target))]

    read = [state[mask] for state in out.encoder_hidden_states]
    assert_alike(ours, run, [*read, *out.decoder_hidden_states, out.logits], n_terms=S)  # the widest sum, over keys


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@every_version
def test_outputs_are_t5s_both_ways(
    tmp_path: Path, version: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    if dtype == torch.float64:  # its norm rounds to float32 whatever it is given
        monkeypatch.setattr(
            T5LayerNorm,
            "forward",
            lambda self, x: nn_functional.rms_norm(x, x.shape[-1:], self.weight, self.variance_epsilon),
        )
    theirs = theirs_of(version).to(dtype)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = read(tmp_path / "theirs", dtype)
    assert (ours.config.share, ours.config.scale_head) == (("all", True) if version == "1.0" else ("embeddings", False))
    assert_same(ours, theirs)
    export_folder(tmp_path / "ours", ours.config, weights_of(ours), pad=PAD, eos=EOS)
    back = T5ForConditionalGeneration.from_pretrained(tmp_path / "ours").eval()
    assert back.dtype == dtype
    assert_same(ours, back)
    written, original = (load_tensors(tmp_path / side / "model.safetensors")[0] for side in ("ours", "theirs"))
    assert written.keys() == original.keys()
    assert all(torch.equal(written[name], original[name]) for name in original)
    said, wanted = (json.loads((tmp_path / side / "config.json").read_text()) for side in ("ours", "theirs"))
    assert said.pop("torch_dtype") == wanted.get("dtype", wanted.get("torch_dtype"))
    assert said.pop("n_positions") == 512
    assert said.pop("tie_word_embeddings") == (version == "1.0")
    assert {key: wanted[key] for key in said} == said
    assert import_folder(tmp_path / "ours")[0] == ours.config


@every_version
def test_greedy_steps_write_what_generate_writes(tmp_path: Path, version: str) -> None:
    theirs = theirs_of(version)
    torch.manual_seed(1)
    with torch.no_grad():
        theirs.decoder.final_layer_norm.weight.neg_()  # or else every text is one word over and over
    theirs.save_pretrained(tmp_path)
    ours, n = read(tmp_path), 5
    mask = torch.arange(S) < torch.tensor([[S], [4], [11], [1], [7]])
    source = torch.randint(2, V, (n, S)).masked_fill(~mask, PAD)
    asked = {"attention_mask": mask.long(), "do_sample": False, "num_beams": 1, "max_new_tokens": 23}

    @torch.inference_mode()
    def write(eos: int) -> list[list[int]]:
        found = sample(ours, ours.start(source, mask), torch.full((n,), PAD), eos, torch.full((n,), 23), greedy)
        return [hypothesis.tokens for [hypothesis] in found]

    endless = write(eos=-1)
    richest = max(endless, key=lambda row: len(set(row)))
    assert len({tuple(row) for row in endless}) == n
    assert len(set(richest)) > 4
    eos = max(richest, key=richest.index)  # the last that is new in it
    # Without their cache, which has as many layers as the encoder and fails where the decoder has more.
    expected = theirs.generate(source, **asked, use_cache=False, eos_token_id=eos)[:, 1:].tolist()  # after PAD
    assert write(eos) == [row[: row.index(eos)] if eos in row else row for row in expected]


@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_new", "silu", "gated-gelu", "gated-silu"])
def test_every_feed_forward(tmp_path: Path, name: str) -> None:
    theirs = theirs_of(feed_forward_proj=name, layer_norm_epsilon=1e-3)
    theirs.save_pretrained(tmp_path)
    assert_same(read(tmp_path), theirs)


def test_older_files_say_the_scale_by_the_tie_and_hold_copies(tmp_path: Path) -> None:
    theirs = theirs_of("1.1")
    theirs.save_pretrained(tmp_path)
    said = json.loads((tmp_path / "config.json").read_text())
    del said["scale_decoder_outputs"], said["num_decoder_layers"], said["relative_attention_max_distance"]
    (tmp_path / "config.json").write_text(json.dumps({**said, "tie_word_embeddings": False}))
    with pytest.raises(CheckpointError, match=r"has `decoder\.block\.2"):
        import_folder(tmp_path)  # as many blocks as the encoder has, if not said
    said |= {"tie_word_embeddings": False, "num_decoder_layers": 3, "relative_attention_max_distance": 7}
    (tmp_path / "config.json").write_text(json.dumps(said))
    everything = {name: tensor.clone() for name, tensor in theirs.state_dict().items()}
    everything["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = torch.ones(6, H)
    save_file(everything, tmp_path / "model.safetensors", {"format": "pt"})
    assert_same(read(tmp_path), theirs)
    del everything["shared.weight"]
    save_file(everything, tmp_path / "model.safetensors", {"format": "pt"})
    assert_same(read(tmp_path), theirs)


@pytest.mark.parametrize("share", ["embeddings", "all"])
@pytest.mark.parametrize("scale_head", [True, False])
def test_our_own_model_goes_over_and_comes_back(tmp_path: Path, share: str, scale_head: bool) -> None:
    config = T5Config(
        source_vocab=V, target_vocab=V, n_encoder_layers=1, n_decoder_layers=2, d_model=D, d_ff=F, n_heads=H, d_head=K,
        share=share, scale_head=scale_head, max_length=29,
    )  # fmt: skip
    ours = T5(config).eval()
    export_folder(tmp_path, config, weights_of(ours), pad=3, eos=2)
    theirs = T5ForConditionalGeneration.from_pretrained(tmp_path).eval()
    assert_same(ours, theirs)
    ids = theirs.config
    assert (ids.pad_token_id, ids.eos_token_id, ids.decoder_start_token_id) == (3, 2, 3)
    again, weights = import_folder(tmp_path)
    assert again == config.changed(norm_eps=1e-6, final_norm=True)
    assert all(torch.equal(weights[name], tensor) for name, tensor in weights_of(ours).items())


def test_missing_and_extra_tensors_are_named(tmp_path: Path) -> None:
    theirs_of().save_pretrained(tmp_path)
    weights = load_tensors(tmp_path / "model.safetensors")[0]
    name = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    bias = weights.pop(name)
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=f"lacks `{name}`"):
        import_folder(tmp_path)
    save_file({**weights, name: bias, "adapter.weight": bias.clone()}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"has `adapter\.weight`"):
        import_folder(tmp_path)


def test_tables_of_either_side_that_differ_are_refused(tmp_path: Path) -> None:
    theirs_of().save_pretrained(tmp_path)
    weights = load_tensors(tmp_path / "model.safetensors")[0]
    save_file({**weights, "decoder.embed_tokens.weight": torch.ones(V, D)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"`decoder.embed_tokens.weight` differs from `shared.weight`"):
        import_folder(tmp_path)


def test_folders_of_other_models_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "mt5"}')
    with pytest.raises(CheckpointError, match="`mt5`, not `t5`"):
        import_folder(tmp_path)


@pytest.mark.parametrize(
    ("fields", "named"), [({"feed_forward_proj": "gated-tanh"}, "gated-tanh"), ({"d_kv": None}, "lacks `d_kv`")]
)
def test_configurations_we_cannot_express_are_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        import_config({**theirs_of().config.to_dict(), **fields}, "config.json")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"residual": "post"}, "residual"),
        ({"final_norm": False}, "final_norm"),
        ({"norm": "layer"}, "norm"),
        ({"bias": True}, "bias"),
        ({"head_bias": True}, "head_bias"),
        ({"positions": {"kind": "rotary"}}, "positions"),
        ({"activation": "geglu"}, "geglu"),
        ({"share": "decoder"}, "share"),
        ({"n_kv_heads": 1}, "n_kv_heads"),
        ({"attention_scale": 0.125}, "attention_scale"),
        ({"scale_embedding": True}, "scale_embedding"),
    ],
)
def test_configurations_t5_cannot_express_are_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        export_config(T5Config().changed(**fields), pad=0, eos=1)

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import MarianConfig, MarianMTModel

from clearformer.checkpoint import load_tensors, weights_of
from clearformer.data.batch import Batch
from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.marian import export_config, export_folder, import_config, import_folder
from clearformer.models.transformer import Transformer, TransformerConfig

from ...bounds import assert_alike
from .conftest import read

B, T, S, H, K, F, V = 2, 3, 5, 7, 11, 13, 17
TIES = [(True, True), (False, True), (False, False)]


def marian(shared: bool = True, tied: bool = True, **fields: Any) -> MarianMTModel:
    """A Marian with every parameter random, its head bias too."""
    torch.manual_seed(0)
    config = MarianConfig(
        **{
            "vocab_size": V, "decoder_vocab_size": V if shared else V + 2, "d_model": H * K, "encoder_layers": 2,
            "decoder_layers": 1, "encoder_ffn_dim": F, "decoder_ffn_dim": F, "encoder_attention_heads": H,
            "decoder_attention_heads": H, "max_position_embeddings": 19, "activation_function": "swish",
            "scale_embedding": True, "pad_token_id": V - 1, "decoder_start_token_id": V - 1, "eos_token_id": 0,
            "share_encoder_decoder_embeddings": shared, "tie_word_embeddings": tied, "dropout": 0.2, **fields,
        }
    )  # fmt: skip
    model = MarianMTModel(config).eval()
    for name, parameter in model.named_parameters():
        if "embed_positions" not in name:
            torch.nn.init.normal_(parameter, 0.1 if parameter.dim() == 1 else 0.0, 0.3)
    torch.nn.init.normal_(model.final_logits_bias)
    return model


def assert_same_logits(ours: Transformer, theirs: MarianMTModel) -> None:
    """On a batch with padding."""
    source, target = torch.randint(V, (B, S)), torch.randint(V, (B, T))
    mask = torch.tensor([[True] * S, [True] * 3 + [False] * 2])
    expected = theirs(input_ids=source, attention_mask=mask.long(), decoder_input_ids=target).logits
    assert_alike(ours, lambda model: [model(Batch(source, mask, target, target))], [expected], n_terms=H * K)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("shared", "tied"), TIES)
def test_logits_are_marians_both_ways(tmp_path: Path, dtype: torch.dtype, shared: bool, tied: bool) -> None:
    theirs = marian(shared, tied).to(dtype)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = read(tmp_path / "theirs", dtype)
    assert_same_logits(ours, theirs)
    export_folder(tmp_path / "ours", ours.config, weights_of(ours), pad=V - 1, eos=0, first=V - 1)
    back = MarianMTModel.from_pretrained(tmp_path / "ours").eval()
    assert back.dtype == dtype
    assert_same_logits(ours, back)
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor)
    said, wanted = (json.loads((tmp_path / side / "config.json").read_text()) for side in ("ours", "theirs"))
    assert said.pop("torch_dtype") == wanted.get("dtype", wanted.get("torch_dtype"))
    assert said.pop("forced_eos_token_id") is None
    assert {key: wanted[key] for key in said} == said


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_new", "silu"])
@pytest.mark.parametrize("scaled", [True, False])
def test_every_activation_and_scale(tmp_path: Path, activation: str, scaled: bool) -> None:
    theirs = marian(activation_function=activation, scale_embedding=scaled)
    theirs.save_pretrained(tmp_path)
    assert_same_logits(read(tmp_path, torch.float32), theirs)


@pytest.mark.parametrize("final_norm", [False, None])
def test_our_own_model_goes_over_and_comes_back(tmp_path: Path, final_norm: bool | None) -> None:
    config = TransformerConfig(
        source_vocab=V, target_vocab=V, n_encoder_layers=1, n_decoder_layers=2, d_model=H * K, d_ff=F, n_heads=H,
        residual="post", final_norm=final_norm, positions={"layout": "halves"}, max_length=19, share="decoder",
    )  # fmt: skip
    ours = Transformer(config).eval()
    export_folder(tmp_path, config, weights_of(ours), pad=2, eos=3, first=1)
    theirs = MarianMTModel.from_pretrained(tmp_path).eval()
    assert_same_logits(ours, theirs)
    ids = theirs.config
    assert (ids.pad_token_id, ids.eos_token_id, ids.decoder_start_token_id) == (2, 3, 1)
    # Marian always has a head bias, here one of zeros, and never a final norm.
    assert import_folder(tmp_path)[0] == config.changed(head_bias=True, final_norm=False)
    assert not import_folder(tmp_path)[1]["unembedding.bias"].any()


def test_a_sharded_folder_is_read_whole(tmp_path: Path) -> None:
    theirs = marian()
    theirs.save_pretrained(tmp_path, max_shard_size="30KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert_same_logits(read(tmp_path, torch.float32), theirs)


def test_copies_of_tied_tensors_and_sinusoids_are_passed_over(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    theirs = marian()
    theirs.save_pretrained(tmp_path)
    everything = {name: tensor.clone() for name, tensor in theirs.state_dict().items()}
    del everything["model.shared.weight"]  # older files know the shared table by one of its other names
    save_file(everything, tmp_path / "model.safetensors", {"format": "pt"})
    assert_same_logits(read(tmp_path, torch.float32), theirs)


def test_missing_and_extra_tensors_are_named(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    marian().save_pretrained(tmp_path)
    weights = load_tensors(tmp_path / "model.safetensors")[0]
    fc1 = weights.pop("model.encoder.layers.1.fc1.bias")
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"lacks `model.encoder.layers.1.fc1.bias`"):
        import_folder(tmp_path)
    save_file(
        {**weights, "model.encoder.layers.1.fc1.bias": fc1, "model.adapter.weight": fc1.clone()},
        tmp_path / "model.safetensors",
    )
    with pytest.raises(CheckpointError, match=r"has `model.adapter.weight`"):
        import_folder(tmp_path)


def test_a_pickle_is_not_opened(tmp_path: Path) -> None:
    marian().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="can run code when opened"):
        import_folder(tmp_path)


def test_an_index_cannot_reach_outside_its_folder(tmp_path: Path) -> None:
    marian().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    index = {"weight_map": {"model.shared.weight": "../elsewhere.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="outside"):
        import_folder(tmp_path)


def test_folders_of_other_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be read"):
        import_folder(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(CheckpointError, match="`bert`"):
        import_folder(tmp_path)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"decoder_ffn_dim": F + 1}, "decoder_ffn_dim"),
        ({"decoder_attention_heads": K}, "decoder_attention_heads"),
        ({"activation_function": "mish"}, "mish"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings"),
        ({"d_model": None}, "d_model"),
    ],
)
def test_configurations_we_cannot_express_are_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        import_config({**marian().config.to_dict(), **fields}, "config.json")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"residual": "pre"}, "residual"),
        ({"final_norm": True}, "final_norm"),
        ({"norm": "rms"}, "norm"),
        ({"bias": False}, "bias"),
        ({"positions": {"kind": "rotary"}}, "positions"),
        ({"activation": "swiglu"}, "swiglu"),
        ({"n_kv_heads": 1}, "n_kv_heads"),
        ({"d_head": 3}, "d_head"),
        ({"attention_scale": 1.0}, "attention_scale"),
        ({"first_norm": True}, "first_norm"),
        ({"norm_eps": 1e-12}, "norm_eps"),
        ({"scale_head": True}, "scale_head"),
        ({"share": "embeddings"}, "share = embeddings"),
    ],
)
def test_configurations_marian_cannot_express_are_refused(fields: dict[str, Any], named: str) -> None:
    config = TransformerConfig(residual="post", final_norm=False, positions={"layout": "halves"}).changed(**fields)
    with pytest.raises(CheckpointError, match=named):
        export_config(config, pad=0, eos=1, first=0)

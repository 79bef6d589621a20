import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import RobertaConfig, RobertaForMaskedLM, RobertaModel

from clearformer.checkpoint import load_tensors, weights_of
from clearformer.data.batch import EncoderBatch
from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.roberta import export_config, export_folder, import_config, import_folder
from clearformer.models.bert import Bert, BertConfig

from ...bounds import assert_alike
from .conftest import read, streams

B, T, H, K, F, V = 2, 5, 7, 3, 13, 17


def theirs_of(kind: Any = RobertaForMaskedLM, **fields: Any) -> Any:
    """A RoBERTa with every parameter random, biases and the unused positions too."""
    torch.manual_seed(0)
    config = RobertaConfig(
        **{
            "vocab_size": V, "hidden_size": H * K, "num_hidden_layers": 3, "num_attention_heads": H,
            "intermediate_size": F, "max_position_embeddings": T + 2, "type_vocab_size": 1, "layer_norm_eps": 1e-5,
            **fields,
        }
    )  # fmt: skip
    model = kind(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0.1 if parameter.dim() == 1 else 0.0, 0.3)
    return model


def assert_same(ours: Bert, theirs: Any) -> None:
    """On rows that fill all positions there are, one of them padded; at real tokens, as others mean nothing."""
    pad = theirs.config.pad_token_id
    mask = torch.arange(T) < torch.tensor([[T], [3]])
    tokens = torch.randint(pad + 1, V, (B, T)).masked_fill(~mask, pad)
    out = theirs(tokens, attention_mask=mask.long(), output_hidden_states=True)
    batch = EncoderBatch(tokens, mask, segments=torch.ones_like(tokens))  # which a RoBERTa knows nothing of

    def run(model: Bert) -> list[Tensor]:
        *_, hidden = states = streams(model.encoder, lambda: model.hidden(batch))
        last = model(batch)[mask] if model.config.word_head else model.pooled(hidden)
        return [*(state[mask] for state in states), last]

    last = out.logits[mask] if ours.config.word_head else out.pooler_output
    assert_alike(ours, run, [*(state[mask] for state in out.hidden_states), last], n_terms=H * K)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [RobertaForMaskedLM, RobertaModel])
def test_outputs_are_robertas_both_ways(tmp_path: Path, kind: Any, dtype: torch.dtype) -> None:
    theirs = theirs_of(kind).to(dtype)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = read(tmp_path / "theirs", dtype)
    is_bare = kind is RobertaModel
    assert (ours.config.word_head, ours.config.pooler) == (not is_bare, is_bare)
    assert (ours.config.max_length, ours.config.positions.offset) == (T, 2)
    assert_same(ours, theirs)
    export_folder(tmp_path / "ours", ours.config, weights_of(ours))
    back = kind.from_pretrained(tmp_path / "ours").eval()
    assert back.dtype == dtype
    assert_same(ours, back)
    written, original = (load_tensors(tmp_path / side / "model.safetensors")[0] for side in ("ours", "theirs"))
    for name in ("lm_head.decoder.weight", "lm_head.decoder.bias"):
        original.pop(name, None)  # copies of what is tied
    assert written.keys() == original.keys()
    assert all(torch.equal(written[name], original[name]) for name in original)
    said, wanted = (json.loads((tmp_path / side / "config.json").read_text()) for side in ("ours", "theirs"))
    assert said.pop("torch_dtype") == wanted.get("dtype", wanted.get("torch_dtype"))
    assert {key: wanted[key] for key in said} == said
    assert import_folder(tmp_path / "ours")[0] == ours.config


def test_positions_begin_after_the_padding_token(tmp_path: Path) -> None:
    theirs = theirs_of(pad_token_id=4, max_position_embeddings=T + 5)
    theirs.save_pretrained(tmp_path)
    ours = read(tmp_path)
    assert (ours.config.max_length, ours.config.positions.offset) == (T, 5)
    assert_same(ours, theirs)


def test_a_pooler_beside_the_word_head_is_kept(tmp_path: Path) -> None:
    config = BertConfig(
        vocab=V, n_layers=2, n_segments=1, d_model=H * K, d_ff=F, n_heads=H, max_length=T, next_sentence_head=False,
        positions={"kind": "learned", "offset": 2},
    )  # fmt: skip
    ours = Bert(config).eval()
    export_folder(tmp_path, config, weights_of(ours))
    assert import_folder(tmp_path)[0] == config.changed(final_norm=False)
    assert_same(read(tmp_path), RobertaForMaskedLM.from_pretrained(tmp_path).eval())


def test_missing_and_extra_tensors_and_heads_of_their_own_are_named(tmp_path: Path) -> None:
    theirs_of().save_pretrained(tmp_path)
    weights = load_tensors(tmp_path / "model.safetensors")[0]
    name = "roberta.encoder.layer.2.output.dense.bias"
    for changes, said in (
        ({name: None}, f"lacks `{name}`"),
        ({"classifier.out_proj.bias": torch.ones(2)}, "has `classifier.out_proj.bias`"),
        ({"lm_head.decoder.weight": torch.ones(V, H * K)}, "`lm_head.decoder.weight` differs from `roberta.embedding"),
    ):
        changed = {key: tensor for key, tensor in {**weights, **changes}.items() if tensor is not None}
        save_file(changed, tmp_path / "model.safetensors")
        with pytest.raises(CheckpointError, match=said):
            import_folder(tmp_path)


def test_folders_of_other_models_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(CheckpointError, match="`bert`, not `roberta`"):
        import_folder(tmp_path)


def test_its_word_head_is_always_a_gelu(tmp_path: Path) -> None:
    theirs_of(hidden_act="relu").save_pretrained(tmp_path / "whole")
    with pytest.raises(CheckpointError, match="word head, but its activation is relu"):
        import_folder(tmp_path / "whole")
    bare = theirs_of(RobertaModel, hidden_act="relu")
    bare.save_pretrained(tmp_path / "bare")
    assert_same(read(tmp_path / "bare"), bare)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"pad_token_id": None}, "pad_token_id"),
        ({"max_position_embeddings": None}, "max_position_embeddings"),
        ({"is_decoder": True}, "is_decoder"),
    ],
)
def test_configurations_we_cannot_express_are_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        import_config({**theirs_of().config.to_dict(), **fields}, "config.json")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"positions": {"kind": "learned"}}, "offset"),
        ({"activation": "relu"}, "its activation is relu"),
        ({"pooler": True, "next_sentence_head": True}, "next_sentence_head"),
        ({"residual": "pre"}, "residual"),
    ],
)
def test_configurations_roberta_cannot_express_are_refused(fields: dict[str, Any], named: str) -> None:
    config = BertConfig(positions={"kind": "learned", "offset": 2}, next_sentence_head=False)
    with pytest.raises(CheckpointError, match=named):
        export_config(config.changed(**fields))

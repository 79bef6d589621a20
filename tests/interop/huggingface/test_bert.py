import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import BertConfig as TheirConfig
from transformers import BertForMaskedLM, BertForNextSentencePrediction, BertForPreTraining, BertModel

from clearformer.checkpoint import load_tensors, weights_of
from clearformer.data.batch import EncoderBatch
from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.bert import export_config, export_folder, import_config, import_folder
from clearformer.models.bert import Bert, BertConfig

from ...bounds import assert_alike
from .conftest import read, streams

B, T, H, K, F, V = 2, 5, 7, 3, 13, 17
CLASSES = {
    BertForPreTraining: (True, True, True),  # word head, pooler, next sentence
    BertForMaskedLM: (True, False, False),
    BertForNextSentencePrediction: (False, True, True),
    BertModel: (False, True, False),
}
every_class = pytest.mark.parametrize("kind", CLASSES)


def theirs_of(kind: Any = BertForPreTraining, **fields: Any) -> Any:
    """A BERT with every parameter random, biases too."""
    torch.manual_seed(0)
    config = TheirConfig(
        **{
            "vocab_size": V, "hidden_size": H * K, "num_hidden_layers": 3, "num_attention_heads": H,
            "intermediate_size": F, "max_position_embeddings": 11, "hidden_dropout_prob": 0.2,
            "attention_probs_dropout_prob": 0.3, **fields,
        }
    )  # fmt: skip
    model = kind(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0.1 if parameter.dim() == 1 else 0.0, 0.3)
    return model


def assert_same(ours: Bert, theirs: Any, pad: int = 0) -> None:
    """Every output that theirs has, on two rows of which one is padded; at real tokens, as others mean nothing."""
    mask = torch.arange(T) < torch.tensor([[T], [3]])
    tokens = torch.randint(3, V, (B, T)).masked_fill(~mask, pad)
    segments = torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 0, 0]])
    if ours.config.n_segments == 1:
        segments = torch.zeros_like(segments)
    out = theirs(tokens, attention_mask=mask.long(), token_type_ids=segments, output_hidden_states=True)
    batch = EncoderBatch(tokens, mask, segments)
    expected = [state[mask] for state in out.hidden_states]
    is_pooled = "pooler_output" in out and out.pooler_output is not None
    if is_pooled:
        expected.append(out.pooler_output)
    if ours.config.word_head:
        expected.append(out.get("prediction_logits", out.get("logits"))[mask])
    if ours.config.next_sentence_head:
        expected.append(out.get("seq_relationship_logits", out.get("logits")))

    def run(model: Bert) -> list[Tensor]:
        *_, hidden = states = streams(model.encoder, lambda: model.hidden(batch))
        found = [state[mask] for state in states]
        found += [model.pooled(hidden)] if is_pooled else []
        found += [model(batch)[mask]] if model.config.word_head else []
        return found + ([model.next_sentence(model.pooled(hidden))] if model.config.next_sentence_head else [])

    assert_alike(ours, run, expected, n_terms=H * K)
    if not ours.config.word_head:
        assert ours(batch).equal(ours.hidden(batch))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@every_class
def test_outputs_are_berts_both_ways(tmp_path: Path, kind: Any, dtype: torch.dtype) -> None:
    theirs = theirs_of(kind).to(dtype)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = read(tmp_path / "theirs", dtype)
    c = ours.config
    assert (c.word_head, c.pooler, c.next_sentence_head) == CLASSES[kind]
    assert_same(ours, theirs)
    export_folder(tmp_path / "ours", ours.config, weights_of(ours), pad=0)
    back = kind.from_pretrained(tmp_path / "ours").eval()
    assert back.dtype == dtype
    assert_same(ours, back)
    written, original = (load_tensors(tmp_path / side / "model.safetensors")[0] for side in ("ours", "theirs"))
    for name in ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias"):
        original.pop(name, None)  # copies of what is tied
    assert written.keys() == original.keys()
    assert all(torch.equal(written[name], original[name]) for name in original)
    said, wanted = (json.loads((tmp_path / side / "config.json").read_text()) for side in ("ours", "theirs"))
    assert said.pop("torch_dtype") == wanted.get("dtype", wanted.get("torch_dtype"))
    assert {key: wanted[key] for key in said} == said
    assert import_folder(tmp_path / "ours")[0] == ours.config


@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_new", "silu"])
def test_every_activation(tmp_path: Path, name: str) -> None:
    theirs = theirs_of(hidden_act=name, layer_norm_eps=1e-3, type_vocab_size=3)
    theirs.save_pretrained(tmp_path)
    assert_same(read(tmp_path), theirs)


@pytest.mark.parametrize("n_segments", [1, 2])
@pytest.mark.parametrize(
    "heads", [(True, True, True), (True, True, False), (True, False, False), (False, True, False), (False,) * 3]
)
def test_our_own_model_goes_over_and_comes_back(
    tmp_path: Path, heads: tuple[bool, bool, bool], n_segments: int
) -> None:
    config = BertConfig(
        vocab=V, n_layers=2, n_segments=n_segments, d_model=H * K, d_ff=F, n_heads=H, max_length=11, norm_eps=1e-6,
        word_head=heads[0], pooler=heads[1], next_sentence_head=heads[2],
    )  # fmt: skip
    ours = Bert(config).eval()
    export_folder(tmp_path, config, weights_of(ours), pad=2)
    again, weights = import_folder(tmp_path)
    assert again == config.changed(final_norm=False)
    assert weights.keys() == weights_of(ours).keys()
    assert all(torch.equal(weights[name], tensor) for name, tensor in weights_of(ours).items())
    theirs = BertModel.from_pretrained(tmp_path).eval()
    assert theirs.config.pad_token_id == 2
    theirs_hidden = theirs(tokens := torch.randint(V, (B, T))).last_hidden_state
    assert_alike(ours, lambda model: [model.hidden(EncoderBatch(tokens))], [theirs_hidden], n_terms=H * K)


@every_class
def test_old_names_copies_and_buffers_are_read(tmp_path: Path, kind: Any) -> None:
    theirs = theirs_of(kind)
    theirs.save_pretrained(tmp_path)
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor.clone()
        for name, tensor in theirs.state_dict().items()
    }
    prefix = "" if kind is BertModel else "bert."
    old[f"{prefix}embeddings.position_ids"] = torch.arange(11)[None]
    old.pop("cls.predictions.bias", None)  # then decoder.bias is the only one
    save_file(old, tmp_path / "model.safetensors", {"format": "pt"})
    assert_same(read(tmp_path), theirs)


def test_missing_and_extra_tensors_are_named(tmp_path: Path) -> None:
    theirs_of(BertModel).save_pretrained(tmp_path)
    weights = load_tensors(tmp_path / "model.safetensors")[0]
    name = "encoder.layer.2.output.dense.bias"
    tensor = weights.pop(name)
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=f"lacks `{name}`"):
        import_folder(tmp_path)
    save_file({**weights, name: tensor, "classifier.weight": tensor.clone()}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"has `classifier\.weight`"):
        import_folder(tmp_path)


def test_a_head_of_its_own_is_refused(tmp_path: Path) -> None:
    theirs_of(BertForMaskedLM).save_pretrained(tmp_path)
    weights = load_tensors(tmp_path / "model.safetensors")[0]
    save_file({**weights, "cls.predictions.decoder.weight": torch.ones(V, H * K)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"`cls.predictions.decoder.weight` differs from `bert.embeddings.word"):
        import_folder(tmp_path)


def test_folders_of_other_models_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "roberta"}')
    with pytest.raises(CheckpointError, match="`roberta`, not `bert`"):
        import_folder(tmp_path)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"hidden_act": "mish"}, "activation `mish`"),
        ({"hidden_size": None}, "lacks `hidden_size`"),
        ({"is_decoder": True}, "is_decoder"),
        ({"position_embedding_type": "relative_key"}, "relative_key"),
    ],
)
def test_configurations_we_cannot_express_are_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        import_config({**theirs_of(BertModel).config.to_dict(), **fields}, "config.json")


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"residual": "pre"}, "residual"),
        ({"final_norm": True}, "final_norm"),
        ({"first_norm": False}, "first_norm"),
        ({"norm": "rms"}, "norm"),
        ({"bias": False}, "bias"),
        ({"positions": {"kind": "rotary"}}, "positions"),
        ({"positions": {"kind": "learned", "offset": 2}}, "offset"),
        ({"activation": "swiglu"}, "swiglu"),
        ({"n_kv_heads": 1}, "n_kv_heads"),
        ({"d_head": 5}, "d_head"),
        ({"attention_scale": 1.0}, "attention_scale"),
        ({"activation_dropout": 0.1}, "activation_dropout"),
        ({"n_segments": 0}, "n_segments"),
    ],
)
def test_configurations_bert_cannot_express_are_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        export_config(BertConfig().changed(**fields), pad=0)

"""Transformers with a part left out or replaced: every path that works for the others works for them."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import clearformer
from clearformer.data.batch import IGNORE, Batch, EncoderBatch, TextBatch
from clearformer.errors import CheckpointError
from clearformer.interop.ctranslate2 import unsupported as not_for_ctranslate2
from clearformer.interop.ctranslate2_gpt import unsupported as gpt_not_for_ctranslate2
from clearformer.interop.huggingface.convert import require_exportable, token_ids
from clearformer.interop.torch_nn import export_transformer
from clearformer.layers.token_norm import TokenBatchNorm
from clearformer.models.build import build_model, parse_model
from clearformer.tasks import objective_named

V, B, S, T = 23, 3, 7, 5
SIZES: dict[str, Any] = {"d_model": 10, "d_ff": 13, "n_heads": 5, "max_length": 11, "dropout": 0.0}
PAIR = {"kind": "transformer", **SIZES, "n_encoder_layers": 2, "n_decoder_layers": 2}
BASES: dict[str, dict[str, Any]] = {
    "transformer": {**PAIR, "source_vocab": V, "target_vocab": V},
    "gpt": {"kind": "gpt", **SIZES, "vocab": V, "n_layers": 2, "attention_dropout": 0.0},
    "bert": {"kind": "bert", **SIZES, "vocab": V, "n_layers": 2, "attention_dropout": 0.0},
}
CHANGES: dict[str, dict[str, Any]] = {
    "norm = batch": {"norm": "batch"},
    "norm = none": {"norm": "none"},
    "residual = none": {"residual": "none"},
    "positions = none": {"positions": {"kind": "none"}},
    "attention_scale = 1": {"attention_scale": 1.0},
    "d_value = 3": {"d_value": 3},
}
every = pytest.mark.parametrize(("base", "change"), [(base, change) for base in BASES for change in CHANGES])


def build(base: str, **settings: Any) -> Any:
    torch.manual_seed(0)
    return build_model(parse_model({**BASES[base], **settings}, "[model]"))


def batch_for(base: str, lengths: tuple[int, ...] = (5, 3, 2), noise: int = 3) -> Any:
    """Rows of the given lengths, then padding, which has the token `noise`."""
    generator = torch.Generator().manual_seed(0)
    real = torch.arange(T) < torch.tensor(lengths)[:, None]
    tokens, labels = (torch.randint(4, V, (B, T), generator=generator) for _ in range(2))
    tokens, labels = tokens.where(real, noise), labels.where(real, IGNORE)
    match base:
        case "transformer":
            mask = torch.arange(S) < torch.tensor([[7], [4], [2]])
            source = torch.randint(4, V, (B, S), generator=generator).where(mask, noise)
            return Batch(source, mask, tokens, labels)
        case "gpt":
            return TextBatch(tokens, labels)
    return EncoderBatch(tokens, real, labels=labels, classes=torch.tensor([1, 0, 1]))


def loss_of(model: Any, batch: Any) -> Tensor:
    kind = objective_named(model.task)
    return kind(kind.Config())(model, batch).total


@every
def test_every_parameter_receives_a_gradient(base: str, change: str) -> None:
    model = build(base, **CHANGES[change])
    loss_of(model, batch_for(base)).backward()
    idle = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    assert idle == []


@every
def test_padding_does_not_matter_in_training(base: str, change: str) -> None:
    """Nor for running statistics, which is new with batch norms."""
    model = build(base, **CHANGES[change]).double()
    other = deepcopy(model)
    torch.testing.assert_close(loss_of(model, batch_for(base)), loss_of(other, batch_for(base, noise=19)))
    for one, two in zip(model.buffers(), other.buffers()):
        torch.testing.assert_close(one, two)


@every
def test_steps_say_what_one_pass_says(base: str, change: str) -> None:
    if base == "bert":
        pytest.skip("reads texts whole")
    model, batch = build(base, **CHANGES[change]).double(), batch_for(base)
    loss_of(model, batch)  # moves running statistics
    model.eval()
    whole = model(batch)
    if base == "transformer":
        state, tokens, begin = model.start(batch.source, batch.source_mask), batch.target, 0
    else:
        state, tokens, begin = model.start(batch.tokens[:, :2], None), batch.tokens, 2
    for t in range(begin, T):
        logits, state = model.step(tokens[:, t : t + 1], state)
        torch.testing.assert_close(logits[:, 0], whole[:, t])


def test_batch_norm_reads_the_batch_in_training_alone() -> None:
    """A row's output depends on the other rows in training, and at inference on nothing but the row."""
    model, batch = build("bert", norm="batch").double(), batch_for("bert")
    other = EncoderBatch(batch.tokens.clone(), batch.mask)
    other.tokens[1:] = 9
    assert not model.hidden(other)[0].allclose(model.hidden(batch)[0])
    model.eval()
    torch.testing.assert_close(model.hidden(other)[0], model.hidden(batch)[0])
    assert all(norm.real is None for norm in model.modules() if isinstance(norm, TokenBatchNorm))


def test_values_of_another_width() -> None:
    model = build("gpt", d_value=3)
    assert model.decoder.blocks[0].attn.qkv.weight.shape == (5 * 2 + 5 * 2 + 5 * 3, 10)
    assert model.decoder.blocks[0].attn.out.weight.shape == (10, 5 * 3)


def test_without_positions_the_order_of_a_source_does_not_matter() -> None:
    model, batch = build("transformer", positions={"kind": "none"}).double().eval(), batch_for("transformer", (5, 5, 5))
    order = torch.tensor([3, 0, 2, 1, 6, 5, 4])
    turned = Batch(batch.source[:1, order], batch.source_mask[:1], batch.target[:1], batch.labels[:1])
    torch.testing.assert_close(model(turned), model(batch)[:1])


@every
def test_exports_refuse_what_they_cannot_carry(base: str, change: str) -> None:
    """Each in one sentence that says which setting; an ONNX file carries them all (tests/interop/test_onnx.py)."""
    model = build(base, **CHANGES[change]).eval()
    key = change.split(" ")[0]
    with pytest.raises(CheckpointError, match=f"does not support {key} = "):
        require_exportable(model.config)
    if base == "transformer":
        assert not_for_ctranslate2(model)
        if key != "positions":  # which are not part of nn.Transformer
            with pytest.raises(CheckpointError, match="cannot be converted"):
                export_transformer(model)
    elif base == "gpt":
        assert gpt_not_for_ctranslate2(model)


@pytest.mark.parametrize("kind", ["transformer", "seq2seq"])
def test_the_decoder_starts_with_the_token_of_the_recipe(kind: str, tmp_path: Path) -> None:
    """In training, at inference, and in a folder for Hugging Face."""
    lines = [f"{a} {b}\t{b} {a}" for a in "abcdefg" for b in "hijklm"]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    sizes = "model.n_encoder_layers=1 model.n_decoder_layers=1 model.d_ff=14 model.n_heads=2"
    sizes = sizes if kind == "transformer" else "model.d_embedding=7"
    settings = [f"model.kind={kind}", "model.d_model=14", *sizes.split(), "model.begins_with=eos", "model.share=none"]
    run = tmp_path / "run"
    with clearformer.start_run(pairs=tmp_path / "pairs.tsv", out=run, steps=2, settings=settings) as training:
        table, seen = training.open_trainer().model.target_embedding, []
        table.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
        next(training)
        training.finish()
    translator: Any = clearformer.load(run)
    tokenizer = translator.target_tokenizer
    assert translator.start_id == tokenizer.eos_id != tokenizer.bos_id
    assert set(seen[0][:, 0].tolist()) == {tokenizer.eos_id}
    if kind == "transformer":
        assert token_ids("pegasus", translator.model.config, {"pad": 0, "bos": 1, "eos": 2})["first"] == 2

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearformer.data.batch import IGNORE, EncoderBatch
from clearformer.errors import ConfigError
from clearformer.layers.attention import PlainCore
from clearformer.layers.norms import layer_norm
from clearformer.models.bert import Bert, BertConfig
from clearformer.models.build import model_config
from clearformer.objectives.masked_lm import MaskedLM, MaskedLMConfig
from clearformer.verbs.inspect import inspect

B, T, V, D = 3, 7, 23, 12

SMALL: dict[str, Any] = {
    "vocab": V, "n_layers": 2, "d_model": D, "d_ff": 17, "n_heads": 3, "max_length": 13, "dropout": 0.0,
    "attention_dropout": 0.0,
}  # fmt: skip
ROBERTA: dict[str, Any] = {
    "n_segments": 1, "positions": {"kind": "learned", "offset": 2}, "pooler": False, "next_sentence_head": False,
}  # fmt: skip
BARE = {"word_head": False, "pooler": True, "next_sentence_head": False}

VARIANTS: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": ROBERTA,
    "no-segments": {"n_segments": 0},
    "pre-norm": {"residual": "pre", "first_norm": False},
    "rotary-swiglu": {"positions": {"kind": "rotary"}, "activation": "swiglu", "norm": "rms", "norm_eps": None},
}
every_variant = pytest.mark.parametrize("variant", VARIANTS)


def build(variant: str = "bert", core: Any = None, **changes: Any) -> Bert:
    """In float64; biases and gains off their starting values, and tables loud enough to matter."""
    torch.manual_seed(0)
    model = Bert(BertConfig(**SMALL | VARIANTS[variant] | changes), core).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def batch(lengths: list[int], width: int | None = None) -> EncoderBatch:
    """Texts whose tokens depend on their length alone, so that a row can be had alone as well; `width` pads all."""
    T = width or max(lengths)
    tokens = torch.zeros(len(lengths), T, dtype=torch.long)
    for row, n in enumerate(lengths):
        tokens[row, :n] = torch.randint(3, V, (n,), generator=torch.Generator().manual_seed(n))
    mask = torch.arange(T) < torch.tensor(lengths)[:, None]
    return EncoderBatch(tokens, mask, (torch.arange(T) >= 2).long().expand(len(lengths), -1))


def exactly(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, atol=1e-12, rtol=0)


# What it is made of


@pytest.mark.parametrize(
    ("name", "bare", "whole"),
    [
        # Of `transformers`: BertModel and BertForPreTraining; RobertaModel, which has a pooler, and RobertaForMaskedLM,
        # which has none.
        ("bert-base", 109_482_240, 110_106_428),
        ("bert-large", 335_141_888, 336_226_108),
        ("roberta-base", 124_645_632, 124_697_433),
    ],
)
def test_published_sizes(name: str, bare: int, whole: int) -> None:
    """The bare model is embeddings, blocks and pooler; the heads are the word head, whose table is the embedding's and
    costs nothing, and the next sentence's."""
    config = model_config(name)
    with torch.device("meta"):
        model, stripped = Bert(config), Bert(config.changed(**BARE))
    assert count(stripped) == bare
    assert count(model) == whole
    D, is_bert = config.d_model, config.pooler
    word_head = D * D + D + 2 * D + config.vocab
    assert (
        count(model) - config.vocab * D
        == sum(count(part) for part in (model.segments, model.encoder, model.pooler, model.next_sentence_head))
        + word_head
    )
    assert whole == bare + word_head + (2 * D + 2 if is_bert else -(D * D + D))

    parts: dict[str, int] = {}
    for layer in inspect(name, 5)["layers"]:
        part = layer["name"].split(".")[0]
        parts[part] = parts.get(part, 0) + layer["parameters"]
    assert sum(parts.values()) == whole
    assert parts["word_head"] == word_head
    assert sum(parts[part] for part in ("embedding", "segments", "encoder")) == bare - (D * D + D)
    assert (parts.get("pooler"), parts.get("next_sentence_head")) == (
        (D * D + D, 2 * D + 2) if is_bert else (None, None)
    )


def count(module: nn.Module | None) -> int:
    return 0 if module is None else sum(parameter.numel() for parameter in module.parameters())


def test_the_heads_are_their_equations() -> None:
    model, texts = build(), batch([T, 4, 5])
    hidden = model.hidden(texts)
    head: Any = model.word_head
    x = torch.nn.functional.gelu(hidden @ head.dense.weight.T + head.dense.bias)
    x = layer_norm(x, head.norm.weight, head.norm.bias, eps=1e-12)
    exactly(model.head(hidden), x @ model.embedding.weight.T + head.unembedding.bias)
    pooler: Any = model.pooler
    exactly(model.pooled(hidden), torch.tanh(hidden[:, 0] @ pooler.weight.T + pooler.bias))
    assert model.next_sentence(model.pooled(hidden)).shape == (B, 2)


def test_embeddings_are_three_tables_and_a_norm() -> None:
    """A model of one block that adds nothing shows what goes in."""
    model, texts = build("bert", residual="pre"), batch([T, 4, 5])
    with torch.no_grad():
        for block in model.encoder.blocks:
            for layer in (block.attn.out, block.mlp.down):  # type: ignore[union-attr]
                layer.weight.zero_()  # type: ignore[union-attr, operator]
                layer.bias.zero_()  # type: ignore[union-attr, operator]
    stack: Any = model.encoder
    table: Any = model.segments
    x = model.embedding.weight[texts.tokens] + table.weight[texts.segments] + stack.positions.table.weight[:T]
    first = layer_norm(x, stack.first_norm.weight, stack.first_norm.bias, eps=1e-12)
    exactly(model.hidden(texts), layer_norm(first, stack.norm.weight, stack.norm.bias, eps=1e-12))


@pytest.mark.parametrize("head", ["word_head", "pooler", "next_sentence_head"])
def test_a_head_that_is_not_there_says_so(head: str) -> None:
    model = build("bert", word_head=False, pooler=False, next_sentence_head=False)
    hidden = model.hidden(texts := batch([T]))
    ask = {"word_head": model.head, "pooler": model.pooled, "next_sentence_head": model.next_sentence}[head]
    with pytest.raises(ConfigError, match=f"this model has no {head}"):
        ask(hidden)
    assert model(texts).equal(hidden)  # what is left is what it says


def test_a_next_sentence_needs_a_pooler() -> None:
    with pytest.raises(ConfigError, match="next_sentence_head needs the pooler"):
        BertConfig.parse({"pooler": False}, "[model]")


# Invariance


@every_variant
def test_every_position_sees_every_other_and_no_padding(variant: str) -> None:
    model, texts = build(variant), batch([T, 4])
    embedded = model.embedding(texts.tokens).detach().requires_grad_()
    model.embedding.forward = lambda _: embedded  # type: ignore[method-assign, assignment]
    hidden = model.hidden(texts)
    real = texts.mask
    assert real is not None
    for row in range(2):
        (slope,) = torch.autograd.grad(hidden[row, 2, 0], embedded, retain_graph=True)
        assert slope[row].abs().sum(-1).bool().tolist() == real[row].tolist()
        assert not slope[1 - row].any()


@every_variant
def test_batch_equals_singles_and_more_padding_changes_nothing(variant: str) -> None:
    model, lengths = build(variant), [T, 4, 5]
    together, padded = model(batch(lengths)), model(batch(lengths, width=11))
    for row, n in enumerate(lengths):
        alone = batch([n])
        exactly(together[row, :n], model(alone)[0])
        exactly(padded[row, :n], model(EncoderBatch(alone.tokens, None, alone.segments))[0])


def test_segments_matter_to_bert_and_not_to_roberta() -> None:
    texts = batch([T])
    for variant, matter in {"bert": True, "roberta": False, "no-segments": False}.items():
        model = build(variant)
        assert (not model(texts).allclose(model(EncoderBatch(texts.tokens)))) == matter
    model = build()
    exactly(model(EncoderBatch(texts.tokens)), model(EncoderBatch(texts.tokens, None, torch.zeros_like(texts.tokens))))


def test_rows_before_the_offset_are_never_read() -> None:
    model, texts = build("roberta"), batch([T, 4])
    before, table = model(texts), model.encoder.positions.table.weight  # type: ignore[union-attr]
    assert table.shape == (13 + 2, D)
    with torch.no_grad():
        table[:2] = 1e6  # type: ignore[index]
    assert model(texts).equal(before)


@every_variant
def test_the_core_is_a_choice_of_speed_alone(variant: str) -> None:
    texts = batch([T, 4, 5])
    exactly(build(variant, PlainCore())(texts), build(variant)(texts))


# Learning


def test_it_begins_with_small_random_numbers() -> None:
    model = Bert(BertConfig(**SMALL | {"vocab": 997, "d_model": 60}))
    for table in (model.embedding.weight, model.encoder.blocks[0].mlp.up.weight):  # type: ignore[union-attr]
        assert table.std().item() == pytest.approx(0.02, rel=0.05)  # type: ignore[union-attr, operator]
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any()


def test_it_learns_to_fill_gaps() -> None:
    """Twelve texts that count, 3 4 5 ..., each with one of its seven numbers hidden: 84 gaps, all filled."""
    torch.manual_seed(0)
    texts = (torch.arange(3, 15)[:, None] + torch.arange(T)).repeat(T, 1)  # (84, T)
    labels = torch.where(torch.arange(T) == torch.arange(T).repeat_interleave(12)[:, None], texts, IGNORE)
    gaps = EncoderBatch(texts.masked_fill(labels != IGNORE, 2), labels=labels)
    size = {"n_layers": 1, "d_model": 48, "d_ff": 64}
    model, objective = Bert(BertConfig(**SMALL | ROBERTA | size)), MaskedLM(MaskedLMConfig())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    gentler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=200)
    for _ in range(200):
        loss = objective(model, gaps)
        optimizer.zero_grad()
        (loss.total / loss.n_tokens).backward()
        optimizer.step()
        gentler.step()
    said = model.eval()(gaps).argmax(-1)
    assert said[labels != IGNORE].tolist() == labels[labels != IGNORE].tolist()

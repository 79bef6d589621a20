"""Pooling by hand, and what must not matter: padding, neighbours, the words a base could say."""

from typing import Any

import pytest
import torch

from clearformer.data.batch import EncoderBatch, TextBatch
from clearformer.errors import ConfigError
from clearformer.models.bert import BertConfig
from clearformer.models.classifier import (
    Classifier,
    ClassifierConfig,
    pool_ends,
    pool_first,
    pool_last,
    pool_max,
    pool_mean,
)
from clearformer.models.gpt import GPTConfig

SIZES: dict[str, Any] = {
    "vocab": 23, "n_layers": 2, "d_model": 12, "d_ff": 17, "n_heads": 3, "max_length": 13, "dropout": 0.0,
    "attention_dropout": 0.0,
}  # fmt: skip
CASES = [("bert", p) for p in ("first", "pooler", "mean", "none")] + [("gpt", p) for p in ("last", "mean", "none")]
every_case = pytest.mark.parametrize(("kind", "pooling"), CASES)


def build(kind: str, pooling: str, **changes: Any) -> Classifier:
    torch.manual_seed(0)
    base = {"kind": kind, **SIZES, **changes}
    model = Classifier(ClassifierConfig(base=base, pooling=pooling, n_classes=5, dropout=0.0))  # type: ignore[arg-type]
    return model.double().eval()


def rows(lengths: list[int], width: int | None = None) -> EncoderBatch:
    width = width or max(lengths)
    tokens = torch.zeros(len(lengths), width, dtype=torch.long)
    for row, n in enumerate(lengths):
        tokens[row, :n] = torch.randint(3, 23, (n,), generator=torch.Generator().manual_seed(n))
    return EncoderBatch(tokens, torch.arange(width) < torch.tensor(lengths)[:, None])


def test_pooling_by_hand() -> None:
    hidden = torch.tensor([[[1.0, 10.0], [3.0, 30.0], [8.0, 80.0]], [[2.0, 20.0], [7.0, float("nan")], [9.0, 0.0]]])
    mask = torch.tensor([[True, True, False], [True, False, False]])
    assert pool_first(hidden, mask).tolist() == [[1, 10], [2, 20]]
    assert pool_mean(hidden, mask).tolist() == [[2, 20], [2, 20]]  # whatever stands at padding
    assert pool_last(hidden, mask).tolist() == [[3, 30], [2, 20]]
    assert pool_mean(hidden[:1], None).tolist() == [[4, 40]]
    assert pool_last(hidden[:1], None).tolist() == [[8, 80]]
    assert pool_max(hidden, mask).tolist() == [[3, 30], [2, 20]]
    assert pool_max(hidden[:1], None).tolist() == [[8, 80]]
    assert pool_ends(hidden, mask).tolist() == [[3, 10], [2, 20]]


def test_only_what_reads_both_ways_apart_has_two_ends() -> None:
    with pytest.raises(ConfigError, match='pooling = "ends" needs kind = "birnn", not "bert"'):
        ClassifierConfig.parse({"base": {"kind": "bert"}, "pooling": "ends"}, "[model]")


@every_case
def test_neither_padding_nor_neighbours_matter(kind: str, pooling: str) -> None:
    model, lengths = build(kind, pooling), [7, 3, 5]
    together = model(rows(lengths, width=11))
    for row, n in enumerate(lengths):
        alone = model(EncoderBatch(rows([n]).tokens))[0]
        torch.testing.assert_close(together[row, :n] if pooling == "none" else together[row], alone, atol=1e-12, rtol=0)


def test_the_last_token_of_a_decoder_has_read_everything() -> None:
    model, batch = build("gpt", "last"), rows([7, 3])
    hidden = model.base.hidden(TextBatch(batch.tokens, batch.tokens))
    torch.testing.assert_close(model.hidden(batch), torch.stack([hidden[0, 6], hidden[1, 2]]))
    changed = batch.tokens.clone()
    changed[:, 0] = 22
    assert not model(EncoderBatch(changed, batch.mask)).allclose(model(batch))


def test_the_base_has_nothing_that_would_say_words() -> None:
    names = {name for name, _ in build("bert", "mean").named_parameters()}
    assert not any("head" in name or "pooler" in name for name in names)
    assert any("pooler" in name for name, _ in build("bert", "pooler").named_parameters())
    gpt = build("gpt", "last", tied=False, head_bias=True)
    assert gpt.base.unembedding.weight is gpt.base.embedding.weight
    assert gpt.base.unembedding.bias is None


def test_its_configuration_survives_a_change_and_a_dump() -> None:
    config = ClassifierConfig(base=BertConfig(**SIZES), pooling="pooler", n_classes=3)
    again = ClassifierConfig.parse(config.model_dump(mode="json", exclude_none=True), "x")
    assert again == config
    changed = config.changed(n_classes=7)
    assert (changed.n_classes, changed.base, changed.vocab, changed.max_length) == (7, config.base, 23, 13)
    assert ClassifierConfig(base=GPTConfig(**SIZES)).changed(n_classes=3).base.kind == "gpt"


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"base": {"kind": "bret"}}, "no model called `bret`"),
        ({"base": {"kind": "t5"}}, 'kind = "t5" cannot be the base of a classifier'),
        ({"base": {"kind": "bert", "n_layer": 2}}, "unknown key `n_layer`"),
        ({"base": {"kind": "gpt"}, "pooling": "pooler"}, 'kind = "gpt" has no pooler'),
        ({"base": {"kind": "bert", "d_model": 13}}, "must be a multiple of n_heads"),
    ],
)
def test_what_cannot_be_built_is_said(table: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        ClassifierConfig.parse(table, "x.toml: [model]")

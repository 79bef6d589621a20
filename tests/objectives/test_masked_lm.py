import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.data.batch import IGNORE, EncoderBatch
from clearformer.errors import ConfigError
from clearformer.models.bert import Bert, BertConfig
from clearformer.objectives.masked_lm import MaskedLM, MaskedLMConfig, cross_entropy

B, T, V = 3, 5, 17
SMALL: dict[str, Any] = {"vocab": V, "n_layers": 1, "d_model": 12, "d_ff": 7, "n_heads": 3, "max_length": T}
LABELS = torch.tensor([[IGNORE, 7, 3, IGNORE, 2], [IGNORE] * 5, [IGNORE, IGNORE, IGNORE, 11, IGNORE]])
CLASSES = torch.tensor([0, 1, 1])
objective = MaskedLM(MaskedLMConfig())


def model_and_tokens(**changes: Any) -> tuple[Bert, Tensor]:
    torch.manual_seed(0)
    return Bert(BertConfig(**SMALL | changes)).double().eval(), torch.randint(V, (B, T))


class Certain(nn.Module):
    """Says word 2 wherever it is asked, with logit 7 against 0, and counts the asking."""

    def hidden(self, batch: EncoderBatch) -> Tensor:
        return F.one_hot(torch.full_like(batch.tokens, 2), 3).double() * 7.0

    def head(self, hidden: Tensor) -> Tensor:
        self.asked = hidden.shape
        return hidden


def test_the_head_is_asked_only_where_a_word_is_hidden() -> None:
    labels = torch.tensor([[IGNORE, 2, 2], [2, IGNORE, IGNORE]])
    model = Certain()
    total, n_tokens = objective(model, EncoderBatch(labels.clamp(min=0), labels=labels))
    assert n_tokens == 3
    assert model.asked == (3, 3)
    assert total.item() == pytest.approx(3 * math.log1p(2 * math.exp(-7)))


def test_words_are_a_sum_and_torch_agrees() -> None:
    model, tokens = model_and_tokens(next_sentence_head=False)
    batch = EncoderBatch(tokens, labels=LABELS, classes=CLASSES)  # a model without that head passes the classes over
    total, n_tokens = objective(model, batch)
    assert n_tokens == 4
    expected = F.cross_entropy(model(batch).flatten(0, 1), LABELS.flatten(), ignore_index=IGNORE)
    torch.testing.assert_close(total / n_tokens, expected, rtol=1e-12, atol=0)


def test_the_paper_adds_two_means() -> None:
    model, tokens = model_and_tokens()
    batch = EncoderBatch(tokens, labels=LABELS, classes=CLASSES)
    total, n_tokens = objective(model, batch)
    words = F.cross_entropy(model(batch).flatten(0, 1), LABELS.flatten(), ignore_index=IGNORE)
    rows = F.cross_entropy(model.next_sentence(model.pooled(model.hidden(batch))), CLASSES)
    torch.testing.assert_close(total / n_tokens, words + rows, rtol=1e-12, atol=0)


def test_the_loss_is_in_the_tensors_alone() -> None:
    """A compiled objective sees the tensors of a batch and not its count."""
    model, tokens = model_and_tokens()
    told, untold = (objective(model, EncoderBatch(tokens, labels=LABELS, classes=CLASSES, n_tokens=n)) for n in (4, 0))
    torch.testing.assert_close(told.total, untold.total)


def test_no_shape_depends_on_what_a_device_holds() -> None:
    """On one that holds no numbers, whoever counts them raises: on CUDA, he would make the host wait."""
    model, tokens = model_and_tokens()
    batch = EncoderBatch(tokens, labels=LABELS, classes=CLASSES).to("meta")
    total, n_tokens = objective(model.to("meta"), batch)
    total.backward()
    assert (total.shape, n_tokens) == ((), 4)


def test_classes_alone_are_counted_by_rows() -> None:
    model, tokens = model_and_tokens()
    total, n = objective(model, EncoderBatch(tokens, classes=CLASSES))
    rows = F.cross_entropy(model.next_sentence(model.pooled(model.hidden(EncoderBatch(tokens)))), CLASSES)
    assert n == B
    torch.testing.assert_close(total / n, rows, rtol=1e-12, atol=0)


def test_nothing_hidden_is_no_loss_and_no_nan() -> None:
    model, tokens = model_and_tokens()
    total, n_tokens = objective(model, EncoderBatch(tokens, labels=torch.full((B, T), IGNORE), classes=CLASSES))
    total.backward()
    assert (total.item(), n_tokens) == (0.0, 0)
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_half_precision_is_summed_in_float32() -> None:
    loss = cross_entropy(torch.zeros(2, 3, dtype=torch.bfloat16), torch.tensor([2, 0]), "sum")
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(2 * math.log(3))


def test_a_model_without_a_word_head_cannot_learn_words() -> None:
    model, tokens = model_and_tokens(word_head=False)
    with pytest.raises(ConfigError, match="no word_head"):
        objective(model, EncoderBatch(tokens, labels=LABELS))

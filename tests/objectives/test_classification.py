"""Losses worked by hand, through a model that says given scores."""

from math import exp, log
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearformer.data.batch import IGNORE, EncoderBatch
from clearformer.errors import ConfigError
from clearformer.objectives.classification import Classification, ClassificationConfig

from ..bounds import float32_bound


class Says(nn.Module):
    """A model whose hidden vectors are its scores."""

    def __init__(self, scores: Tensor) -> None:
        super().__init__()
        self.scores = scores

    def hidden(self, batch: EncoderBatch) -> Tensor:
        return self.scores

    def head(self, hidden: Tensor) -> Tensor:
        return hidden


def loss(scores: Any, **given: Any) -> tuple[float, int]:
    config = {key: given.pop(key) for key in ("weights", "label_smoothing") if key in given}
    scores = torch.tensor(scores, dtype=torch.float64)
    batch = EncoderBatch(torch.zeros(len(scores), 2, dtype=torch.long), **given)
    total, count = Classification(ClassificationConfig(**config))(Says(scores), batch)
    return float(total), count


def test_a_sum_over_texts() -> None:
    told = loss([[0.0, log(3)], [log(4), 0.0]], classes=torch.tensor([1, 1]))  # p = 3/4 and 1/5
    assert told == (pytest.approx(-log(3 / 4) - log(1 / 5)), 2)


def test_a_class_may_weigh_more() -> None:
    told = loss([[0.0, log(3)], [log(4), 0.0]], classes=torch.tensor([0, 1]), weights=(2.0, 5.0))
    assert told == (pytest.approx(-2 * log(1 / 4) - 5 * log(1 / 5)), 2)
    with pytest.raises(ConfigError, match="3 weights for 2 classes"):
        loss([[0.0, 0.0]], classes=torch.tensor([0]), weights=(1.0, 1.0, 1.0))


def test_positions_that_are_not_asked_for_do_not_count() -> None:
    scores = [[[0.0, log(3)], [9.0, -9.0]], [[log(4), 0.0], [0.0, 0.0]]]
    told = loss(scores, labels=torch.tensor([[1, IGNORE], [0, 1]]))
    assert told == (pytest.approx(-log(3 / 4) - log(4 / 5) - log(1 / 2)), 3)


def test_a_regression_adds_up_squares() -> None:
    assert loss([[1.5], [-2.0]], classes=torch.tensor([1.0, 1.0])) == (0.25 + 9.0, 2)


def test_a_regression_of_positions_adds_up_those_that_are_asked_for() -> None:
    """No value is taken for a sign that nothing is asked, not even that which stands for it among classes."""
    labels = torch.tensor([[1.0, float("nan")], [float(IGNORE), -1.0]])
    assert loss([[[1.5], [7.0]], [[-98.0], [-2.0]]], labels=labels) == (0.25 + 4.0 + 1.0, 3)


def test_smoothing_gives_a_share_to_every_class() -> None:
    told = loss([[0.0, log(3)]], classes=torch.tensor([1]), label_smoothing=0.2)[0]
    assert told == pytest.approx(-0.9 * log(3 / 4) - 0.1 * log(1 / 4))


def test_smoothing_does_not_weigh_the_other_classes() -> None:
    told = loss([[0.0, log(3)]], classes=torch.tensor([1]), label_smoothing=0.2, weights=(100.0, 2.0))[0]
    assert told == pytest.approx(2 * (-0.9 * log(3 / 4) - 0.1 * log(1 / 4)))


def test_half_precision_is_summed_in_float32() -> None:
    scores = torch.tensor([[8.0, 0.0]], dtype=torch.bfloat16)
    batch = EncoderBatch(torch.zeros(1, 2, dtype=torch.long), classes=torch.tensor([0]))
    total, _ = Classification(ClassificationConfig())(Says(scores), batch)
    assert total.dtype == torch.float32
    # Both 8 and the logarithm of e^8 + 1 are rounded; in bfloat16 their difference would be 0.
    assert float(total) == pytest.approx(log(1 + exp(-8)), abs=float32_bound(2, 8.0), rel=0)

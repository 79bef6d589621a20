"""Balancing by hand, against a search, with classes that are missing, and folded into a linear layer."""

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.evaluation.labels import balanced_loss
from clearformer.evaluation.metrics.balancing import WIDEST, fit_balancing


def skewed(n: int, n_rare: int, gap: float, bias: float) -> tuple[Tensor, Tensor]:
    """Margins of two classes, `gap` apart, all pushed by `bias` towards the first."""
    torch.manual_seed(7)
    labels = torch.cat([torch.zeros(n - n_rare), torch.ones(n_rare)]).long()
    margin = torch.randn(n, dtype=torch.float64) + gap * labels - bias
    return torch.stack([torch.zeros_like(margin), margin], 1), labels


def test_the_threshold_is_between_the_classes() -> None:
    logits, labels = skewed(4000, 400, 4.0, 9.0)
    assert int(logits.argmax(1).sum()) == 0  # only the frequent class is predicted
    balancing = fit_balancing(logits, labels)
    threshold = float(balancing.offset[0] - balancing.offset[1]) / balancing.scale
    assert abs(threshold - (-9 + 2)) < 0.2  # the middle of two normal distributions of equal width
    recalls = [float((balancing(logits).argmax(1)[labels == k] == k).double().mean()) for k in (0, 1)]
    assert min(recalls) > 0.95  # each side has 2.3 % of its distribution beyond the middle


def test_no_scale_is_better() -> None:
    logits, labels = skewed(2000, 100, 1.0, 5.0)
    scale, offset = fit_balancing(logits, labels)
    shift, best = offset / scale, balanced_loss(scale * logits + offset, labels)
    for factor in (0.8, 0.99, 1.01, 1.25):
        assert balanced_loss(factor * scale * (logits + shift), labels) > best


def test_a_reversed_classifier_is_not_reversed() -> None:
    """With few examples of a rare class, the order may be reversed by chance; both classes are still predicted."""
    logits, labels = skewed(500, 5, -1.0, 5.0)
    balancing = fit_balancing(logits, labels)
    spread = float((logits - logits.mean(1, keepdim=True)).std(0).mean())
    assert abs(balancing.scale * spread - 1 / WIDEST) < 1e-9
    assert 0.2 < float(balancing(logits).argmax(1).double().mean()) < 0.8


def test_classes_without_validation_examples_keep_their_place() -> None:
    logits, labels = skewed(400, 40, 3.0, 6.0)
    with_third = torch.cat([logits, logits.mean(1, keepdim=True) - 50], 1)
    balancing = fit_balancing(with_third, labels)
    assert float(balancing.offset[2]) == 0
    assert abs(float(balancing.offset.sum())) < 1e-9
    assert set(balancing(with_third).argmax(1).tolist()) == {0, 1}


def test_nothing_to_fit() -> None:
    logits, labels = skewed(10, 0, 0.0, 1.0)
    for case in (fit_balancing(logits, labels), fit_balancing(torch.zeros(10, 2), torch.arange(10) % 2)):
        assert case.scale == 1
        assert case.offset.tolist() == [0, 0]


def test_folded_into_a_layer() -> None:
    torch.manual_seed(3)
    hidden, weight, bias = torch.randn(11, 5).double(), torch.randn(3, 5).double(), torch.randn(3).double()
    logits = F.linear(hidden, weight, bias)
    balancing = fit_balancing(logits, torch.arange(11) % 3)
    torch.testing.assert_close(F.linear(hidden, *balancing.folded(weight, bias)), balancing(logits))

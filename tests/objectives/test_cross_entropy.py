import math

import pytest
import torch
import torch.nn.functional as F

from clearformer.data.batch import IGNORE
from clearformer.objectives.cross_entropy import smoothed_cross_entropy


def test_label_smoothing_by_hand():
    """Two words of probability 3/4 and 1/4; the first is right; ε = 0.2 gives q = (0.9, 0.1)."""
    logits = torch.tensor([[[math.log(3.0), 0.0]]], dtype=torch.float64)
    loss = smoothed_cross_entropy(logits, torch.tensor([[0]]), 0.2)
    assert loss.item() == pytest.approx(-(0.9 * math.log(3 / 4) + 0.1 * math.log(1 / 4)))


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.7])
def test_is_the_equation_and_torch(epsilon):
    B, T, V = 2, 3, 5
    torch.manual_seed(0)
    logits = torch.randn(B, T, V, dtype=torch.float64)
    labels = torch.tensor([[1, 4, IGNORE], [0, IGNORE, IGNORE]])
    q = torch.full((B, T, V), epsilon / V, dtype=torch.float64)
    q += (1 - epsilon) * F.one_hot(labels.clamp(min=0), V).double()
    by_equation = -(q * logits.log_softmax(-1)).sum(-1)[labels != IGNORE].sum()
    by_torch = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=epsilon) * 3
    loss = smoothed_cross_entropy(logits, labels, epsilon)
    torch.testing.assert_close(loss, by_equation, rtol=1e-13, atol=0)
    torch.testing.assert_close(loss, by_torch, rtol=1e-13, atol=0)


def test_half_precision_logits_are_summed_in_float32():
    logits = torch.zeros(1, 1, 3, dtype=torch.bfloat16)
    loss = smoothed_cross_entropy(logits, torch.tensor([[2]]), 0.0)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(math.log(3))

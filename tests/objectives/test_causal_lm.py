import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.data.batch import IGNORE, TextBatch
from clearformer.objectives.causal_lm import CausalLM, CausalLMConfig


class Repeating(torch.nn.Module):
    """Bets on the word it has just read, with logit 5 against 0 for the two others."""

    def hidden(self, batch: TextBatch) -> Tensor:
        return F.one_hot(batch.tokens, 3) * 5.0

    def head(self, hidden: Tensor) -> Tensor:
        return hidden


@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_a_sum_over_what_comes_next_and_a_count(epsilon: float) -> None:
    """Of x = 2 2 1 and 0 0, twice the next word is the same and once another; ε goes to all three words."""
    tokens, labels = torch.tensor([[2, 2], [0, 1]]), torch.tensor([[2, 1], [0, IGNORE]])
    total, n_tokens = CausalLM(CausalLMConfig(label_smoothing=epsilon))(Repeating(), TextBatch(tokens, labels))
    same, other = (math.log(2 + math.exp(5)) - logit for logit in (5, 0))
    everywhere = (same + 2 * other) / 3
    assert n_tokens == 3
    assert total.item() == pytest.approx((1 - epsilon) * (2 * same + other) + epsilon * 3 * everywhere, rel=1e-6)


def test_labels_are_not_smoothed_unless_asked_for() -> None:
    assert CausalLMConfig().label_smoothing == 0

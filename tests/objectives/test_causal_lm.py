import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.data.batch import IGNORE, TextBatch
from clearformer.errors import CheckpointError
from clearformer.objectives.causal_lm import CausalLM, CausalLMConfig


class Repeating(torch.nn.Module):
    """Bets on the word it has just read, with logit 5 against 0 for the two others."""

    def hidden(self, batch: TextBatch) -> Tensor:
        return F.one_hot(batch.tokens, 3).double() * 5.0

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
    assert total.item() == pytest.approx((1 - epsilon) * (2 * same + other) + epsilon * 3 * everywhere)


def test_labels_are_not_smoothed_unless_asked_for() -> None:
    assert CausalLMConfig().label_smoothing == 0


class Counting(Repeating):
    """Its state is the sum of all it has read; what it says has a gradient through its only weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.began: list[list[float]] = []

    def read(self, batch: TextBatch, state: Tensor | None) -> tuple[Tensor, Tensor]:
        state = torch.zeros(1, 2, 1) if state is None else state * batch.continues[:, None]
        assert not state.requires_grad
        self.began.append(state.flatten().tolist())
        return self.hidden(batch) * self.weight, (state[0] + batch.tokens.sum(1, keepdim=True) * self.weight)[None]


def test_state_is_carried_from_batch_to_batch_block_by_block() -> None:
    model, objective = Counting(), CausalLM(CausalLMConfig())
    tokens = torch.tensor([[1, 1], [0, 1]])
    first, on = torch.tensor([False, False]), torch.tensor([True, False])
    for block, goes_on in [(0, first), (1, first), (0, on), (1, ~on), (0, on)]:
        objective(model, TextBatch(tokens, tokens, continues=goes_on, block=block)).total.backward()
    assert model.began == [[0, 0], [0, 0], [2, 0], [0, 1], [4, 0]]
    assert {block: state.flatten().tolist() for block, state in objective.carried.items()} == {0: [6, 1], 1: [2, 2]}
    other = CausalLM(CausalLMConfig())  # a validation, say
    other(model, TextBatch(tokens, tokens, continues=first))
    assert objective.carried[0].flatten().tolist() == [6, 1]


def test_rows_that_stop_or_join_midway_are_refused() -> None:
    model, objective, tokens = Counting(), CausalLM(CausalLMConfig()), torch.ones(2, 3, dtype=torch.long)
    objective(model, TextBatch(tokens, tokens, continues=torch.tensor([False, False])))
    with pytest.raises(CheckpointError, match="the recurrent state has 2 rows, but the batch has 1"):
        objective(model, TextBatch(tokens[:1], tokens[:1], continues=torch.tensor([True])))

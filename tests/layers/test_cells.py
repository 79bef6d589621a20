"""Each cell by numbers worked by hand: one unit, one input, sizes that make every term tell."""

from math import exp, tanh

import pytest
import torch
from torch import Tensor

from clearformer.layers.cells import CELLS


def sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x))


def step(cell: str, x: list[float], state: list[float], W: list[float], b: list[float] | None = None) -> list[float]:
    def wide(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64)

    after = CELLS[cell].step(
        wide(x)[None], wide(state)[:, None, None], wide(W)[:, None], None if b is None else wide(b)
    )
    return after[:, 0, 0].tolist()


def test_rnn() -> None:
    assert step("rnn", [0.3], [0.5], [2.0], [0.1]) == pytest.approx([tanh(0.3 + 2 * 0.5 + 0.1)])


def test_rnn_with_a_sigmoid() -> None:
    assert step("rnn-sigmoid", [0.3], [0.5], [2.0]) == pytest.approx([sigmoid(0.3 + 2 * 0.5)])


def test_the_notes_rnn_keeps_what_is_not_squashed_yet() -> None:
    assert step("rnn-notes", [0.3], [0.5], [2.0]) == pytest.approx([0.3 + 2 * tanh(0.5)])
    assert CELLS["rnn-notes"].read(torch.tensor([[0.5]], dtype=torch.float64)).item() == pytest.approx(tanh(0.5))


def test_simplified_gru() -> None:
    u, candidate = sigmoid(0.3 + 2 * 0.5), tanh(-0.7 + 3 * 0.5)
    assert step("gru-simple", [0.3, -0.7], [0.5], [2.0, 3.0]) == pytest.approx([u * candidate + (1 - u) * 0.5])


def test_full_gru_of_the_notes_asks_what_of_the_memory_is_relevant() -> None:
    r, u = sigmoid(0.3 + 2 * 0.5), sigmoid(0.2 - 0.5)
    candidate = tanh(-0.7 + 3 * (r * 0.5))
    told = step("gru-notes", [0.3, 0.2, -0.7], [0.5], [2.0, -1.0, 3.0])
    assert told == pytest.approx([u * candidate + (1 - u) * 0.5])


def test_gru_as_torch_has_it() -> None:
    """z keeps, where the notes' u replaces; and the relevance gate comes after the product and its bias."""
    r, z = sigmoid(0.3 + 2 * 0.5 + 0.1), sigmoid(0.2 - 0.5 + 0.2)
    candidate = tanh(-0.7 + r * (3 * 0.5 + 0.4))
    told = step("gru", [0.3, 0.2, -0.7], [0.5], [2.0, -1.0, 3.0], [0.1, 0.2, 0.4])
    assert told == pytest.approx([(1 - z) * candidate + z * 0.5])


@pytest.mark.parametrize("cell", ["lstm", "lstm-notes"])
def test_lstm(cell: str) -> None:
    h, m, x, W = 0.5, -0.9, [0.3, 0.2, -0.7, 0.6], [2.0, -1.0, 3.0, 1.5]
    u, f, candidate, o = (f(a + w * h) for f, a, w in zip((sigmoid, sigmoid, tanh, sigmoid), x, W))
    after = u * candidate + f * m
    read = o * (tanh(after) if cell == "lstm" else after)
    assert step(cell, x, [h, m], W) == pytest.approx([read, after])


@pytest.mark.parametrize("cell", ["gru-simple", "gru-notes"])
def test_a_closed_gate_keeps_the_memory_and_its_gradient(cell: str) -> None:
    """What the notes praise: with u → 0, ∂m'/∂m → 1, however long the sentence."""
    n = len(CELLS[cell].gate_names)
    x = torch.zeros(1, n).double()
    x[0, n - 2] = -40.0  # the update gate stands before the candidate
    memory = torch.full((1, 1, 1), 0.37, dtype=torch.float64, requires_grad=True)
    state = memory
    for _ in range(50):
        state = CELLS[cell].step(x, state, torch.ones(n, 1).double(), None)
    state.sum().backward()
    assert (state.item(), memory.grad.item()) == (pytest.approx(0.37), pytest.approx(1.0))


def test_both_forms_of_the_rnn_say_the_same() -> None:
    """a = φ(h) turns the one into the other."""
    torch.manual_seed(0)
    W, xs = torch.randn(5, 5).double(), torch.randn(7, 3, 5).double()
    kept, squashed = torch.zeros(1, 3, 5).double(), torch.zeros(1, 3, 5).double()
    for x in xs:
        kept, squashed = CELLS["rnn-notes"].step(x, kept, W, None), CELLS["rnn"].step(x, squashed, W, None)
        torch.testing.assert_close(CELLS["rnn-notes"].read(kept), CELLS["rnn"].read(squashed))

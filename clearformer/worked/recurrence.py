"""Recurrent networks by numbers: backpropagation through time, gates, the words of a sentence."""

from collections.abc import Iterable, Iterator, Sequence
from math import exp, log, tanh

import torch
from torch import Tensor

from clearformer.handles.gaps import repair
from clearformer.handles.scorer import Score
from clearformer.layers.cells import LSTM, NotesLSTM, NotesRNN, SimpleGRU
from clearformer.layers.recurrent import recurrent
from clearformer.objectives.cross_entropy import smoothed_cross_entropy
from clearformer.worked.example import Figure, worked

COURSE = "deep-learning course"
D, T = 2, 3


@worked("bptt", "∂E/∂W as a double sum over three steps", f"{COURSE}, 27/03 and 30/03, l.718-752", NotesRNN)
def bptt() -> Iterator[Figure]:
    """h_t = U x_t + W φ(h_{t−1}), y_t = V φ(h_t), E = ½ Σ (ŷ − y)², beside the gradient that autograd computes."""
    torch.manual_seed(0)
    W, V, x, targets = (torch.randn(n, D, dtype=torch.float64) for n in (D, D, T, T))
    W.requires_grad_()
    states = [torch.randn(1, D, dtype=torch.float64)]
    for t in range(T):
        states.append(NotesRNN.step(x[t], states[-1], W, None))
    errors = torch.stack([NotesRNN.read(h[None])[0] @ V.T for h in states[1:]]) - targets
    (whole,) = torch.autograd.grad((errors**2).sum() / 2, W)
    with torch.no_grad():
        terms = double_sum(states, W, V, errors)
    yield Figure("terms of the sum, T (T + 1) / 2", len(terms), expected=6)
    yield Figure("∂E/∂W", whole.tolist(), sum(terms.values(), torch.zeros(D, D)).tolist())
    transposed = slipped_sum(states, W, V, errors)
    slip = "∂h_i/∂h_{i−1} is W diag φ′ in the numerator layout, not Wᵀ diag φ′"
    correct = sum(terms.values(), torch.zeros(D, D)).tolist()
    yield Figure("∂E/∂W with the factors of 30/03", whole.tolist(), transposed.tolist(), correct, slip)


def factor(h: Tensor, W: Tensor) -> Tensor:
    """∂h_i/∂h_{i−1} = W diag φ′(h_{i−1})"""
    return W * (1 - torch.tanh(h) ** 2)


def double_sum(
    states: list[Tensor], W: Tensor, V: Tensor, errors: Tensor, is_slipped: bool = False
) -> dict[tuple[int, int], Tensor]:
    """Return the terms ∂E_t/∂y_t · ∂y_t/∂h_t · ∂h_t/∂h_k · ∂h_k/∂W for 1 ≤ k ≤ t ≤ T."""
    terms = {}
    for t in range(1, T + 1):
        row = errors[t - 1] @ (V * (1 - torch.tanh(states[t][0]) ** 2))  # ∂E_t/∂h_t, (D,)
        for k in range(t, 0, -1):
            terms[t, k] = row[:, None] * torch.tanh(states[k - 1][0])  # h_k = … + W φ(h_{k−1})
            row = row @ factor(states[k - 1][0], W.T if is_slipped else W)
    return terms


def slipped_sum(states: list[Tensor], W: Tensor, V: Tensor, errors: Tensor) -> Tensor:
    with torch.no_grad():
        return sum(double_sum(states, W, V, errors, is_slipped=True).values(), torch.zeros(D, D))


@worked("gates", "a closed gate keeps the memory", f"{COURSE}, 31/03 and 06/04, l.863-888", SimpleGRU)
def gates() -> Iterator[Figure]:
    """One unit, memory 0.37; the update gate is σ(−40). The memory after 50 words, and its gradient."""
    memory = torch.full((1, 1, 1), 0.37, dtype=torch.float64, requires_grad=True)
    state, x = memory, torch.tensor([[-40.0, 1.0]], dtype=torch.float64)
    for _ in range(50):
        state = SimpleGRU.step(x, state, torch.ones(2, 1, dtype=torch.float64), None)
    (gradient,) = torch.autograd.grad(state.sum(), memory)
    yield Figure("memory", state.item(), 0.37)
    yield Figure("∂m_50/∂m_0", gradient.item(), 1.0)
    open_gate = SimpleGRU.step(
        torch.tensor([[0.3, -0.7]]).double(), memory.detach(), torch.tensor([[2.0], [3.0]]).double(), None
    )
    u = 1 / (1 + exp(-(0.3 + 2 * 0.37)))
    by_hand = u * tanh(-0.7 + 3 * 0.37) + (1 - u) * 0.37
    yield Figure("m = u m̃ + (1 − u) m for an open gate", open_gate.item(), by_hand)


@worked("lstm", "h = o ⊙ m, with a forget gate", f"{COURSE}, 06/04, l.908-928", NotesLSTM)
def lstm() -> Iterator[Figure]:
    """One unit without weights, gates at σ(0) = ½, memory 2, no candidate: m' = 1. Without a forget gate, m' = 2."""
    state = torch.tensor([[[0.0]], [[2.0]]]).double()
    nothing, weights = torch.zeros(1, 4).double(), torch.zeros(4, 1).double()
    slip = "h = o ⊙ tanh(m) in torch and cuDNN; both forms are here, `lstm-notes` and `lstm`"
    yield Figure(
        "h and m as the notes write them", NotesLSTM.step(nothing, state, weights, None).flatten().tolist(), [0.5, 1.0]
    )
    here = LSTM.step(nothing, state, weights, None)[0].item()
    yield Figure("h of the usual cell", here, 0.5, 0.5 * tanh(1.0), slip)


@worked("bidirectional", "h_t = [→h_t ←h_t]", f"{COURSE}, 06/04, l.931-950", recurrent)
def bidirectional() -> Iterator[Figure]:
    """Teddy bears, Teddy Roosevelt: only the backward half of a state can tell which Teddy."""
    torch.manual_seed(0)
    both = recurrent("gru", 3, 2, 1, bidirectional=True)
    bears = torch.randn(1, 4, 3)
    roosevelt = bears.clone()
    roosevelt[:, 2:] = torch.randn(1, 2, 3)
    one, other = (both.outputs(x)[0, 1] for x in (bears, roosevelt))
    yield Figure("width of a state", len(one), 2 * 2)
    yield Figure("forward half sees what follows", str(not torch.equal(one[:2], other[:2])), "False")
    yield Figure("backward half sees what follows", str(not torch.equal(one[2:], other[2:])), "True")


@worked("loss", "L = −y log ŷ + (1 − y) log(1 − ŷ)", f"{COURSE}, 31/03, l.833", smoothed_cross_entropy)
def loss() -> Iterator[Figure]:
    """A wrong sentence, y = 0, with ŷ = 0.2: the loss must be positive."""
    logits = torch.tensor([[log(0.8), log(0.2)]], dtype=torch.float64)
    here = smoothed_cross_entropy(logits, torch.tensor([0]), 0.0).item()
    yield Figure("loss", here, log(1 - 0.2), -log(1 - 0.2), "both terms have a minus sign")


class OneWord:
    """A model that proposes the same word everywhere, and finds short sentences as probable as long ones."""

    def score(self, texts: Sequence[str], closed: bool | None = None) -> list[Score]:
        return [Score(text, 0.0, len(text.split())) for text in texts]

    def weigh(self, left: str, right: str, words: Iterable[str]) -> list[tuple[str, float]]:
        return [(word, 0.0) for word in words]

    def propose(self, left: str, right: str, n: int = 50) -> list[tuple[str, float]]:
        return [("pulled", 0.0)]


@worked("places", "The man the cart: places for a missing word", f"{COURSE}, 31/03, l.835-841", repair)
def places() -> Iterator[Figure]:
    fillings = repair(OneWord(), "The man the cart", n=10)
    yield Figure("sentences to score for one word", len(fillings), 5)

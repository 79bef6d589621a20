"""Recurrent cells, which carry a state from token to token. Each cell is one equation.

    rnn           h' = tanh(x + W h)                                                    Elman 1990
    rnn-sigmoid   h' = σ(x + W h)                                                       course notes' sentence scorer
    rnn-notes     h' = x + W φ(h),  output φ(h)                                         course notes, φ = tanh
    gru-simple    m' = u ⊙ m̃ + (1 − u) ⊙ m                                              course notes, update gate only
    gru-notes     as gru-simple, but m̃ sees r ⊙ m, the relevant part of m               Cho et al. 2014, course notes
    gru           as gru-notes, but with r ⊙ W m: one product serves all gates          torch, cuDNN
    lstm-notes    m' = u ⊙ m̃ + f ⊙ m,  h' = o ⊙ m'                                      course notes
    lstm          m' = u ⊙ m̃ + f ⊙ m,  h' = o ⊙ tanh(m')                                torch, cuDNN

x stands for U x_t + b, the input's contribution to each gate, computed for all times at once before the loop. The
course notes write [h, x] W' with one matrix for both; W and U are its two halves. The forget gate f was added to the
LSTM by Gers et al. 2000; the cell of Hochreiter & Schmidhuber 1997 has none, as if f were 1.
"""

from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Cell:
    """A cell with N state vectors and G gates: state (N, …, D), x (…, G·D), W (G·D, D) -> state (N, …, D).

    b (G·D,) is a second bias, which only torch's cells have. lerp(m, m̃, u) = u ⊙ m̃ + (1 − u) ⊙ m. A step has two
    parts: `gates` computes the gates and the candidate, and `move` the next state from them.
    """

    gate_names: ClassVar[tuple[str, ...]] = ("candidate",)
    n_states: ClassVar[int] = 1
    kernel: ClassVar[Any] = None  # torch's fused module for the same equation, if there is one

    @classmethod
    def step(cls, x: Tensor, state: Tensor, W: Tensor, b: Tensor | None) -> Tensor:
        return cls.move(state, *cls.gates(x, state, W, b))

    @staticmethod
    def gates(x: Tensor, state: Tensor, W: Tensor, b: Tensor | None) -> tuple[Tensor, ...]:
        """Return the gates and the candidate in the order of `gate_names`, each as a state vector or (…, D)."""
        raise NotImplementedError

    @classmethod
    def move(cls, state: Tensor, *gates: Tensor) -> Tensor:
        """Return the next state (N, …, D); by default, it is the candidate."""
        return gates[0]

    @staticmethod
    def read(state: Tensor) -> Tensor:
        """Return the output (…, D) of a state, which is the input of the layer above."""
        return state[0]


class RNN(Cell):
    """h' = tanh(x + W h + b)"""

    kernel = nn.RNN

    @staticmethod
    def gates(x: Tensor, state: Tensor, W: Tensor, b: Tensor | None) -> tuple[Tensor, ...]:
        return (torch.tanh(x + F.linear(state, W, b)),)


class SigmoidRNN(Cell):
    """h' = σ(x + W h)

    Its slope is at most 1/4, where tanh's is at most 1.
    """

    @staticmethod
    def gates(x: Tensor, state: Tensor, W: Tensor, b: Tensor | None) -> tuple[Tensor, ...]:
        return (torch.sigmoid(x + F.linear(state, W, b)),)


class NotesRNN(Cell):
    """h' = x + W φ(h),  y = V φ(h)

    This is the same function as `RNN`, but the state is the value before the tanh.
    """

    @staticmethod
    def gates(x: Tensor, state: Tensor, W: Tensor, b: Tensor | None) -> tuple[Tensor, ...]:
        return (x + F.linear(torch.tanh(state), W),)

    @staticmethod
    def read(state: Tensor) -> Tensor:
        return torch.tanh(state[0])


class SimpleGRU(Cell):
    """u = σ(x_u + W_u m),  m̃ = tanh(x_c + W_c m),  m' = u ⊙ m̃ + (1 − u) ⊙ m

    Where u is 0, the memory is unchanged, and so is its gradient.
    """

    gate_names = ("update", "candidate")

    @staticmethod
    def gates(x: Tensor, state: Tensor, W: Tensor, b: Tensor | None) -> tuple[Tensor, ...]:
        update, candidate = (x + F.linear(state, W)).chunk(2, dim=-1)
        return torch.sigmoid(update), torch.tanh(candidate)

    @classmethod
    def move(cls, state: Tensor, *gates: Tensor) -> Tensor:
        update, candidate = gates
        return torch.lerp(state, candidate, update)


class NotesGRU(Cell):
    """r = σ(x_r + W_r m),  u = σ(x_u + W_u m),  m̃ = tanh(x_c + W_c (r ⊙ m)),  m' = u ⊙ m̃ + (1 − u) ⊙ m"""

    gate_names = ("relevant", "update", "candidate")

    @staticmethod
    def gates(x: Tensor, state: Tensor, W: Tensor, b: Tensor | None) -> tuple[Tensor, ...]:
        D = state.size(-1)
        relevant, update = torch.sigmoid(x[..., : 2 * D] + F.linear(state, W[: 2 * D])).chunk(2, dim=-1)
        return relevant, update, torch.tanh(x[..., 2 * D :] + F.linear(relevant * state, W[2 * D :]))

    @classmethod
    def move(cls, state: Tensor, *gates: Tensor) -> Tensor:
        _, update, candidate = gates
        return torch.lerp(state, candidate, update)


class GRU(Cell):
    """r = σ(x_r + W_r h),  z = σ(x_z + W_z h),  h̃ = tanh(x_n + r ⊙ W_n h),  h' = (1 − z) ⊙ h̃ + z ⊙ h

    z corresponds to 1 − u in the course notes.
    """

    gate_names = ("reset", "keep", "candidate")
    kernel = nn.GRU

    @staticmethod
    def gates(x: Tensor, state: Tensor, W: Tensor, b: Tensor | None) -> tuple[Tensor, ...]:
        D = state.size(-1)
        past = F.linear(state, W, b)
        reset, keep = torch.sigmoid(x[..., : 2 * D] + past[..., : 2 * D]).chunk(2, dim=-1)
        return reset, keep, torch.tanh(x[..., 2 * D :] + reset * past[..., 2 * D :])

    @classmethod
    def move(cls, state: Tensor, *gates: Tensor) -> Tensor:
        _, keep, candidate = gates
        return torch.lerp(candidate, state, keep)


class LSTM(Cell):
    """u, f, o = σ(x + W h),  m̃ = tanh(x + W h),  m' = u ⊙ m̃ + f ⊙ m,  h' = o ⊙ tanh(m')

    The state is (h, m). Each gate has its own rows of x and W, in torch's order: u (torch's input gate), f, m̃, o.
    """

    gate_names = ("update", "forget", "candidate", "output")
    n_states = 2
    kernel: ClassVar[Any] = nn.LSTM

    @staticmethod
    def gates(x: Tensor, state: Tensor, W: Tensor, b: Tensor | None) -> tuple[Tensor, ...]:
        update, forget, candidate, output = (x + F.linear(state[0], W, b)).chunk(4, dim=-1)
        return torch.sigmoid(update), torch.sigmoid(forget), torch.tanh(candidate), torch.sigmoid(output)

    @classmethod
    def move(cls, state: Tensor, *gates: Tensor) -> Tensor:
        update, forget, candidate, output = gates
        m = update * candidate + forget * state[1]
        return torch.stack([output * cls.squash(m), m])

    @staticmethod
    def squash(m: Tensor) -> Tensor:
        return torch.tanh(m)


class NotesLSTM(LSTM):
    """An LSTM with h' = o ⊙ m' instead of o ⊙ tanh(m'), so that its output is as unbounded as its memory."""

    kernel = None

    @staticmethod
    def squash(m: Tensor) -> Tensor:
        return m


CellName = Literal["rnn", "rnn-sigmoid", "rnn-notes", "gru-simple", "gru-notes", "gru", "lstm-notes", "lstm"]
CELLS: dict[str, type[Cell]] = {
    "rnn": RNN,
    "rnn-sigmoid": SigmoidRNN,
    "rnn-notes": NotesRNN,
    "gru-simple": SimpleGRU,
    "gru-notes": NotesGRU,
    "gru": GRU,
    "lstm-notes": NotesLSTM,
    "lstm": LSTM,
}

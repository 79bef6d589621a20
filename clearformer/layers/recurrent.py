"""Layers of recurrent cells: stacked, in one direction or both, over rows of different lengths.

    Unrolled    the cell's equation, step by step                 any cell: clear, slow, the reference
    Fused       torch's kernel for all steps at once              rnn, gru, lstm

Both name their weights as torch does (`weights.weight_hh_l1_reverse`), so that each can load the weights of the other.
`recurrent` chooses the fused layer if torch has a kernel for the cell.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from clearformer.layers.cells import CELLS
from clearformer.layers.masks import within


class Unrolled(nn.Module):
    """Recurrent layers that apply the equation of a cell step by step to x (B, T, D_in).

    Returns the outputs (B, T, D), or (B, T, 2D) if bidirectional, and the last state (N, L, B, D). N is the number of
    vectors in a state: h, or h and m. L is the number of layers times the number of directions.
    """

    def __init__(
        self,
        cell: str,
        d_input: int,
        d_hidden: int,
        n_layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.cell, self.n_layers, self.d_hidden = CELLS[cell], n_layers, d_hidden
        self.directions = ("", "_reverse") if bidirectional else ("",)
        self.dropout = dropout if n_layers > 1 else 0.0  # between layers, never on the state carried through time
        settings: dict[str, Any] = {"batch_first": True, "bidirectional": bidirectional, "dropout": self.dropout}
        kernel = self.cell.kernel
        self.weights: Any = (
            Weights(len(self.cell.gate_names), d_input, d_hidden, n_layers, self.directions)
            if kernel is None
            else kernel(d_input, d_hidden, n_layers, **settings)
        )

    def forward(self, x: Tensor, state: Tensor | None = None, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Run the layers over x, starting from `state`, which is zero by default.

        With `lengths` (B,), which may be 0, outputs after the end of a row are zero. The last state is then the state
        at the end of the row or, for the reverse direction, at its beginning.
        """
        with autocast_off(x.device.type):
            x = x.to(next(self.parameters()).dtype)
            n_passes = self.n_layers * len(self.directions)
            if state is None:
                state = x.new_zeros(self.cell.n_states, n_passes, x.size(0), self.d_hidden)
            if x.size(1) == 0:
                return x.new_zeros(x.size(0), 0, len(self.directions) * self.d_hidden), state
            return self.run(x, state, lengths)

    def outputs(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return only the outputs, starting from a state of zeros."""
        return self(x, None, lengths)[0]

    def run(self, x: Tensor, state: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        real = None if lengths is None else within(x.size(1), lengths.to(x.device))
        last: list[Tensor] = []
        for layer in range(self.n_layers):
            x = F.dropout(x, self.dropout, self.training and layer > 0)
            outputs = []
            for direction in self.directions:
                y, end = self.run_layer(f"l{layer}{direction}", x, state[:, len(last)], real)
                outputs.append(y)
                last.append(end)
            x = torch.cat(outputs, dim=2)
        return x, torch.stack(last, dim=1)

    def run_layer(self, name: str, x: Tensor, state: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        """Run one layer in one direction: x (B, T, D_in), state (N, B, D), real (B, T) -> (B, T, D), (N, B, D)."""
        U, W, b = (getattr(self.weights, f"{part}_{name}") for part in ("weight_ih", "weight_hh", "bias_ih"))
        b2 = getattr(self.weights, f"bias_hh_{name}", None)
        inputs = F.linear(x, U, b)  # (B, T, G·D)
        times = range(x.size(1))
        outputs = list(inputs.unbind(1))
        for t in reversed(times) if name.endswith("reverse") else times:
            after = self.cell.step(inputs[:, t], state, W, b2)
            state = after if real is None else torch.where(real[:, t, None], after, state)
            outputs[t] = self.cell.read(state)
        y = torch.stack(outputs, dim=1)
        return y if real is None else y.masked_fill(~real[:, :, None], 0.0), state


class Fused(Unrolled):
    """`Unrolled` with torch's kernel, cuDNN on CUDA. Rows of different lengths are packed, so padding costs nothing."""

    def run(self, x: Tensor, state: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        first = tuple(state.contiguous()) if self.cell.n_states > 1 else state[0].contiguous()
        if lengths is None or lengths.is_meta or hasattr(lengths, "fake_mode"):  # without values to pack by
            x, last = self.weights(x, first)
            return x, self.joined(last)
        T, lengths = x.size(1), lengths.to("cpu", torch.int64)  # packing needs them on the CPU
        packed = pack_padded_sequence(x, lengths.clamp(min=1), batch_first=True, enforce_sorted=False)
        packed, last = self.weights(packed, first)
        x, _ = pad_packed_sequence(packed, batch_first=True, total_length=T)
        if lengths.min() > 0:
            return x, self.joined(last)
        real = (lengths > 0).to(x.device)[:, None]  # an empty row was packed with length 1; it keeps its initial state
        return x * real[:, None], torch.where(real, self.joined(last), state)

    def outputs(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return only the outputs, starting from a state of zeros; on the CPU, without packed rows.

        On the CPU, torch's backward pass through packed rows takes time quadratic in their length. Instead, each
        direction runs separately over padded rows. For the reverse direction, the tokens of each row are
        reversed, so that padding still comes last.
        """
        if lengths is None or x.device.type != "cpu":
            return super().outputs(x, lengths)
        times = torch.arange(x.size(1))
        real = times < lengths[:, None]  # (B, T)
        backwards = torch.where(real, lengths[:, None] - 1 - times, times)[:, :, None]
        with autocast_off("cpu"):
            x = x.to(next(self.parameters()).dtype)
            for layer in range(self.n_layers):
                x = F.dropout(x, self.dropout, self.training and layer > 0)
                outputs = [self.one_direction(f"l{layer}", x)]
                if len(self.directions) > 1:
                    y = self.one_direction(f"l{layer}_reverse", x.gather(1, backwards.expand_as(x)))
                    outputs.append(y.gather(1, backwards.expand_as(y)))
                x = torch.cat(outputs, dim=2) * real[:, :, None]
        return x

    def one_direction(self, name: str, x: Tensor) -> Tensor:
        """Run one layer in one direction with the kernel that nn.RNN, nn.GRU and nn.LSTM call."""
        weights = [getattr(self.weights, f"{part}_{name}") for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        zeros = x.new_zeros(1, x.size(0), self.d_hidden)
        first = (zeros, zeros) if self.cell.n_states > 1 else zeros
        kernel: Any = getattr(torch, self.weights.mode.lower())
        return kernel(x, first, weights, True, 1, 0.0, self.training, False, True)[0]

    def joined(self, last: Any) -> Tensor:
        return torch.stack(last) if self.cell.n_states > 1 else last[None]


class Step(nn.Module):
    """A single recurrent step, for decoders that attend between steps: x (…, G·D), state (N, …, D) -> next state."""

    def __init__(self, cell: str, d_hidden: int) -> None:
        super().__init__()
        self.cell = CELLS[cell]
        self.weight_hh = uniform(len(self.cell.gate_names) * d_hidden, d_hidden, d_hidden=d_hidden)
        self.bias_hh = uniform(len(self.cell.gate_names) * d_hidden, d_hidden=d_hidden) if self.cell.kernel else None

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        return self.cell.step(x, state, self.weight_hh, self.bias_hh)


class Weights(nn.Module):
    """The weights of a cell that torch lacks, under the names that torch uses, but with one bias instead of two."""

    def __init__(self, n_gates: int, d_input: int, d_hidden: int, n_layers: int, directions: tuple[str, ...]) -> None:
        super().__init__()
        for layer in range(n_layers):
            width = len(directions) * d_hidden if layer else d_input
            for direction in directions:
                for part, shape in (("weight_ih", [width]), ("weight_hh", [d_hidden]), ("bias_ih", [])):
                    weight = uniform(n_gates * d_hidden, *shape, d_hidden=d_hidden)
                    self.register_parameter(f"{part}_l{layer}{direction}", weight)


def uniform(*shape: int, d_hidden: int) -> nn.Parameter:
    """Return a parameter drawn from U(−1/√D, 1/√D), the initialisation of torch's recurrent layers."""
    parameter = nn.Parameter(torch.empty(shape))
    nn.init.uniform_(parameter, -(d_hidden**-0.5), d_hidden**-0.5)
    return parameter


def autocast_off(device: str) -> AbstractContextManager[object]:
    """Disable autocast, with which cuDNN would compute recurrences in float16, where small gradients vanish."""
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()


def recurrent(cell: str, *sizes: Any, **settings: Any) -> Unrolled:
    """Build layers of the named cell, fused if torch has a kernel for it. Takes the arguments of `Unrolled`."""
    return (Unrolled if CELLS[cell].kernel is None else Fused)(cell, *sizes, **settings)

"""Layers of recurrent cells: stacked, in one direction or both, over rows of different lengths.

    Unrolled    step by step, as the cell's equation says         any cell: clear, slow, the reference
    Fused       torch's kernel for all steps at once              rnn, gru, lstm

Both have the same weights by the same names, torch's own (`weights.weight_hh_l1_reverse`): what the one has learnt, the
other loads. `recurrent` takes the fast one where there is one.
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
    """x (B, T, D_in) -> what is read at each time (B, T, D), or (B, T, 2D) both ways, and the last state (N, L, B, D).

    N vectors make a state (h; or h and m), and L counts layers, and directions inside them.
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
        self.ways = ("", "_reverse") if bidirectional else ("",)
        self.dropout = dropout if n_layers > 1 else 0.0  # between layers, never on what is carried through time
        settings: dict[str, Any] = {"batch_first": True, "bidirectional": bidirectional, "dropout": self.dropout}
        kernel = self.cell.kernel
        self.weights: Any = (
            Weights(self.cell.n_gates, d_input, d_hidden, n_layers, self.ways)
            if kernel is None
            else kernel(d_input, d_hidden, n_layers, **settings)
        )

    def forward(self, x: Tensor, state: Tensor | None = None, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Without `state`, from zeros. Where rows have `lengths` (B,), which may be 0, the rest of a row says zeros,
        and its last state is that at its own end; for the way back, at its beginning.
        """
        with own_precision(x.device.type):
            x = x.to(next(self.parameters()).dtype)
            n_passes = self.n_layers * len(self.ways)
            if state is None:
                state = x.new_zeros(self.cell.n_states, n_passes, x.size(0), self.d_hidden)
            if x.size(1) == 0:
                return x.new_zeros(x.size(0), 0, len(self.ways) * self.d_hidden), state
            return self.run(x, state, lengths)

    def outputs(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The same from zeros, for whoever does not ask for the last state."""
        return self(x, None, lengths)[0]

    def run(self, x: Tensor, state: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        real = None if lengths is None else within(x.size(1), lengths.to(x.device))
        last: list[Tensor] = []
        for layer in range(self.n_layers):
            x = F.dropout(x, self.dropout, self.training and layer > 0)
            read = []
            for way in self.ways:
                outputs, end = self.go(f"l{layer}{way}", x, state[:, len(last)], real)
                read.append(outputs)
                last.append(end)
            x = torch.cat(read, dim=2)
        return x, torch.stack(last, dim=1)

    def go(self, name: str, x: Tensor, state: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        """One layer in one direction: x (B, T, D_in), state (N, B, D), real (B, T) -> (B, T, D), (N, B, D)."""
        U, W, b = (getattr(self.weights, f"{part}_{name}") for part in ("weight_ih", "weight_hh", "bias_ih"))
        b2 = getattr(self.weights, f"bias_hh_{name}", None)
        inputs = F.linear(x, U, b)  # (B, T, G·D)
        times = range(x.size(1))
        read = list(inputs.unbind(1))
        for t in reversed(times) if name.endswith("reverse") else times:
            after = self.cell.step(inputs[:, t], state, W, b2)
            state = after if real is None else torch.where(real[:, t, None], after, state)
            read[t] = self.cell.read(state)
        outputs = torch.stack(read, dim=1)
        return outputs if real is None else outputs.masked_fill(~real[:, :, None], 0.0), state


class Fused(Unrolled):
    """The same by torch's kernel: cuDNN's on CUDA. Rows of different lengths are packed, and padding costs nothing."""

    def run(self, x: Tensor, state: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
        first = tuple(state.contiguous()) if self.cell.n_states > 1 else state[0].contiguous()
        if lengths is None or lengths.is_meta:  # of shapes alone nothing can be packed
            x, last = self.weights(x, first)
            return x, self.joined(last)
        T, lengths = x.size(1), lengths.to("cpu", torch.int64)  # where packing wants them
        packed = pack_padded_sequence(x, lengths.clamp(min=1), batch_first=True, enforce_sorted=False)
        packed, last = self.weights(packed, first)
        x, _ = pad_packed_sequence(packed, batch_first=True, total_length=T)
        if lengths.min() > 0:
            return x, self.joined(last)
        real = (lengths > 0).to(x.device)[:, None]  # a row without words: it was packed as one, and goes on as it began
        return x * real[:, None], torch.where(real, self.joined(last), state)

    def outputs(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """On the CPU torch goes back through packed rows in a time that grows with the square of their length.

        Instead, each way is run by itself, the way back over rows turned round at their own ends: padding comes last.
        """
        if lengths is None or x.device.type != "cpu":
            return super().outputs(x, lengths)
        times = torch.arange(x.size(1))
        real = times < lengths[:, None]  # (B, T)
        turned = torch.where(real, lengths[:, None] - 1 - times, times)[:, :, None]
        with own_precision("cpu"):
            x = x.to(next(self.parameters()).dtype)
            for layer in range(self.n_layers):
                x = F.dropout(x, self.dropout, self.training and layer > 0)
                read = [self.one_way(f"l{layer}", x)]
                if len(self.ways) > 1:
                    back = self.one_way(f"l{layer}_reverse", x.gather(1, turned.expand_as(x)))
                    read.append(back.gather(1, turned.expand_as(back)))
                x = torch.cat(read, dim=2) * real[:, :, None]
        return x

    def one_way(self, name: str, x: Tensor) -> Tensor:
        """One layer in one direction by the kernel that nn.RNN, nn.GRU and nn.LSTM call."""
        weights = [getattr(self.weights, f"{part}_{name}") for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        zeros = x.new_zeros(1, x.size(0), self.d_hidden)
        first = (zeros, zeros) if self.cell.n_states > 1 else zeros
        kernel: Any = getattr(torch, self.weights.mode.lower())
        return kernel(x, first, weights, True, 1, 0.0, self.training, False, True)[0]

    def joined(self, last: Any) -> Tensor:
        return torch.stack(last) if self.cell.n_states > 1 else last[None]


class Step(nn.Module):
    """A cell by itself, for a decoder that must look between its steps: x (…, G·D), state (N, …, D) -> state."""

    def __init__(self, cell: str, d_hidden: int) -> None:
        super().__init__()
        self.cell = CELLS[cell]
        self.weight_hh = drawn(self.cell.n_gates * d_hidden, d_hidden, d_hidden=d_hidden)
        self.bias_hh = drawn(self.cell.n_gates * d_hidden, d_hidden=d_hidden) if self.cell.kernel else None

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        return self.cell.step(x, state, self.weight_hh, self.bias_hh)


class Weights(nn.Module):
    """The matrices of a cell that torch does not have, under torch's names. One bias does."""

    def __init__(self, n_gates: int, d_input: int, d_hidden: int, n_layers: int, ways: tuple[str, ...]) -> None:
        super().__init__()
        for layer in range(n_layers):
            width = len(ways) * d_hidden if layer else d_input
            for way in ways:
                for part, shape in (("weight_ih", [width]), ("weight_hh", [d_hidden]), ("bias_ih", [])):
                    weight = drawn(n_gates * d_hidden, *shape, d_hidden=d_hidden)
                    self.register_parameter(f"{part}_l{layer}{way}", weight)


def drawn(*shape: int, d_hidden: int) -> nn.Parameter:
    """U(−1/√D, 1/√D), as torch begins its own."""
    return nn.Parameter(nn.init.uniform_(torch.empty(shape), -(d_hidden**-0.5), d_hidden**-0.5))


def own_precision(device: str) -> AbstractContextManager[object]:
    """Inside, autocast is off: it would have cuDNN compute recurrences in float16, where small gradients vanish."""
    return torch.autocast(device, enabled=False) if torch.amp.is_autocast_available(device) else nullcontext()


def recurrent(cell: str, *sizes: Any, **settings: Any) -> Unrolled:
    """Layers of the cell of this name, fused where torch can; the arguments are those of `Unrolled`."""
    return (Unrolled if CELLS[cell].kernel is None else Fused)(cell, *sizes, **settings)

"""See the states and gates of recurrent layers, which torch's kernels keep to themselves.

To read them, the layers run a second time by the equation of their cell, and the model uses the result of the kernel.
To change them, the layers run by the equation instead of the kernel.
"""

from collections.abc import Callable
from copy import copy
from typing import Any, Protocol

import torch
from torch import Tensor

from clearformer.layers.cells import Cell
from clearformer.layers.recurrent import Step, Unrolled
from clearformer.lens.points import STATES


class Observer(Protocol):
    """The part of a Lens that is needed here."""

    patches: dict[str, Any]

    def visit(self, name: str, value: Tensor) -> Tensor: ...
    def patched(self, name: str, value: Tensor) -> Tensor: ...
    def keep_if_wanted(self, name: str, value: Tensor) -> None: ...


class WatchedCell:
    """A cell whose gates and states pass through `see(name, value)` in every step."""

    def __init__(self, cell: type[Cell], see: Callable[[str, Tensor], Tensor]) -> None:
        self.cell, self.see = cell, see
        self.n_states, self.gate_names, self.kernel, self.read = cell.n_states, cell.gate_names, cell.kernel, cell.read

    def step(self, x: Tensor, state: Tensor, W: Tensor, b: Tensor | None) -> Tensor:
        gates = self.cell.gates(x, state, W, b)
        seen = [self.see_vector(name, gate, x) for name, gate in zip(self.gate_names, gates)]
        after = self.cell.move(state, *seen)
        return torch.stack([self.see(name, vector) for name, vector in zip(STATES, after)])

    def see_vector(self, name: str, gate: Tensor, x: Tensor) -> Tensor:
        """Let a gate be seen as (…, D), also if it has the leading axis of a state."""
        return self.see(name, gate[0])[None] if gate.dim() > x.dim() else self.see(name, gate)


def watch_step(step: Step, prefix: str, lens: Observer) -> Callable[[], None]:
    """Let a Lens see the gates of single steps. Returns a function that ends this."""
    cell = step.cell
    step.cell = WatchedCell(cell, lambda name, value: lens.visit(prefix + name, value))  # type: ignore[assignment]

    def undo() -> None:
        step.cell = cell

    return undo


def watch_layers(layers: Unrolled, prefix: str, lens: Observer) -> Callable[[], None]:
    """Let a Lens see the states and gates of recurrent layers. Returns a function that ends this."""
    plain = by_equation(layers, prefix, lens)
    run, outputs, n_runs = layers.run, layers.outputs, [0]
    if any(name.startswith(prefix) for name in lens.patches):
        layers.run, layers.outputs = plain.run, plain.outputs  # type: ignore[method-assign]
    else:

        def run_and_watch(x: Tensor, state: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
            n_runs[0] += 1
            plain.run(x, state, lengths)
            return run(x, state, lengths)

        def outputs_and_watch(x: Tensor, lengths: Tensor | None = None) -> Tensor:
            before = n_runs[0]
            result = outputs(x, lengths)
            if n_runs[0] == before:  # a kernel for each direction, without `run`
                plain.outputs(x, lengths)
            return result

        layers.run, layers.outputs = run_and_watch, outputs_and_watch  # type: ignore[method-assign]

    def undo() -> None:
        del layers.run, layers.outputs

    return undo


def by_equation(layers: Unrolled, prefix: str, lens: Observer) -> Unrolled:
    """Return layers with the same weights that run step by step, with every state and gate seen by the Lens."""
    plain: Any = copy(layers)
    plain.__class__ = Unrolled
    seen: dict[str, list[Tensor]] = {}
    current = [""]

    def see(name: str, value: Tensor) -> Tensor:
        value = lens.patched(f"{prefix}{current[0]}.{name}", value)
        seen.setdefault(name, []).append(value)
        return value

    def run_layer(name: str, x: Tensor, state: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        current[0] = name
        seen.clear()
        result = Unrolled.run_layer(plain, name, x, state, real)
        for part, values in seen.items():
            in_order = values[::-1] if name.endswith("reverse") else values
            lens.keep_if_wanted(f"{prefix}{name}.{part}", torch.stack(in_order, dim=1))
        return result

    plain.cell, plain.run_layer = WatchedCell(layers.cell, see), run_layer
    return plain

"""Several LoRA adapters in one batch: every row has the update of its own adapter.

    y = x W' + b + (s_a ⊙ x A') B'            A (ΣR, in) and B (out, ΣR): the matrices of all adapters side by side
                                              s_a (ΣR,): α/R at the columns of adapter a, and 0 at the others

For a row with adapter a, this is the update of that adapter alone; without one, s_0 = 0. Two products serve all rows,
and adapters may differ in rank and in the layers that they adapt.

    names = mix_adapters(model)                       the adapters that `add_lora` added, numbered from 1
    with rows_choose(numbers): model.step(…)          numbers (B, 1), or (1, T) for each position
"""

from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.layers.linear import Linear
from clearformer.layers.row_choice import row_choice
from clearformer.tuning.adapters import adapted_layers, adapters, refuse_merged, replace_modules
from clearformer.tuning.lora import LoraLinear, Pair


class Updates(nn.Module):
    """The updates by all adapters of features `start` to `stop` of a layer."""

    A: Tensor
    B: Tensor
    scales: Tensor

    def __init__(self, start: int, stop: int, pairs: dict[int, Pair], n_adapters: int) -> None:
        """`pairs` are the pairs of a layer for these features, by the number of their adapter."""
        super().__init__()
        self.start, self.stop = start, stop
        self.register_buffer("A", torch.cat([pair.A.detach() for pair in pairs.values()]))  # (ΣR, in)
        self.register_buffer("B", torch.cat([pair.B.detach() for pair in pairs.values()], dim=1))  # (out, ΣR)
        scales = self.A.new_zeros(n_adapters + 1, len(self.A))
        first = 0
        for number, pair in pairs.items():
            scales[number, first : first + len(pair.A)] = pair.scale
            first += len(pair.A)
        self.register_buffer("scales", scales)

    def forward(self, x: Tensor, numbers: Tensor, start: int, stop: int) -> Tensor:
        """Compute features `start` to `stop` of the layer's update: x (…, in) -> (…, stop − start)."""
        scales = self.scales[numbers if x.dim() > 2 else numbers[:, 0]]  # (B, 1, ΣR) or (1, T, ΣR)
        return F.linear(F.linear(x, self.A) * scales, self.B[start - self.start : stop - self.start])


class RowLinear(Linear):
    """A Linear with the updates of all its adapters, of which each row gets its own. W and b keep their names."""

    updates: Any

    @classmethod
    def of(cls, layer: LoraLinear, names: list[str]) -> Self:
        mixed = cls.__new__(cls)
        mixed.__dict__.update(layer.__dict__, _modules={})
        places: dict[tuple[int, int], dict[int, Pair]] = {}
        for number, name in enumerate(names, start=1):
            for pair in layer.pairs(name).values():
                places.setdefault((pair.start, pair.stop), {})[number] = pair
        mixed.updates = nn.ModuleList(Updates(*place, pairs, len(names)) for place, pairs in places.items())
        return mixed

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x, 0, self.out_features)

    def part(self, x: Tensor, start: int, stop: int) -> Tensor:
        y = super().part(x, start, stop)
        numbers = row_choice()
        for update in () if numbers is None else self.updates:
            low, high = max(start, update.start), min(stop, update.stop)
            if low < high:
                y.narrow(-1, low - start, high - low).add_(update(x, numbers, low, high))
        return y


def mix_adapters(model: nn.Module) -> list[str]:
    """Replace the layers of all adapters, so that rows choose theirs; returns the names, numbered from 1."""
    refuse_merged(model)
    names = adapters(model)
    replace_modules(model, {layer: RowLinear.of(layer, names) for layer in adapted_layers(model)})
    return names

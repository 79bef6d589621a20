"""The matrix product y = x W' + b, in parts, and packed for the CPU.

A matrix kernel reads its weights in tiles. oneDNN can lay them out so once and for all, instead of at every product,
which tells where there are few rows to multiply, and hardly where there are a hundred.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Linear(nn.Linear):
    """nn.Linear, some of whose output features can be had by themselves."""

    def part(self, x: Tensor, start: int, stop: int) -> Tensor:
        """x (…, in) -> (…, stop − start): features `start` to `stop` of what `forward` gives."""
        return F.linear(x, self.weight[start:stop], None if self.bias is None else self.bias[start:stop])


class PackedLinear(Linear):
    """A Linear for inference in float32 on the CPU. Its weights must not change any more: the tiles are copies."""

    tiles: dict[tuple[int, int], Tensor]
    n_rows: int

    @classmethod
    def of(cls, layer: nn.Linear, n_rows: int) -> "PackedLinear":
        """`n_rows`: how many vectors a product is expected to have; any other number works too."""
        packed = cls.__new__(cls)
        packed.__dict__.update(layer.__dict__)
        packed.tiles, packed.n_rows = {}, n_rows
        return packed

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x, 0, self.out_features)

    def part(self, x: Tensor, start: int, stop: int) -> Tensor:
        weight, bias = self.weight[start:stop], None if self.bias is None else self.bias[start:stop]
        if x.numel() == self.in_features:  # a single vector: reading the weights as they lie is the fastest
            y = torch.mv(weight, x.flatten()) if bias is None else torch.addmv(bias, weight, x.flatten())
            return y.view(*x.shape[:-1], stop - start)
        if (start, stop) not in self.tiles:
            self.tiles[start, stop] = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), self.n_rows)
        return torch.ops.mkldnn._linear_pointwise(x, self.tiles[start, stop], bias, "none", [], "")


def pack(model: nn.Module, n_rows: int = 64) -> nn.Module:
    """Replace every linear layer by its packed twin, where that is possible: float32 weights on a CPU with oneDNN.

    Parameters keep their names and stay shared where they were. A subclass that computes something else is left alone.
    """
    weight = next(model.parameters())
    if weight.device.type == "cpu" and weight.dtype == torch.float32 and torch.backends.mkldnn.is_available():
        for parent in list(model.modules()):
            for name, child in parent.named_children():
                if isinstance(child, nn.Linear) and type(child).forward is nn.Linear.forward:
                    setattr(parent, name, PackedLinear.of(child, n_rows))
    return model

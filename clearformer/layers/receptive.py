"""The receptive field of every tensor that a forward pass computes from an image, for any network.

    filter, pool      r' = r + (F − 1) j,   j' = j S          geometry.py
    mean, flatten     F = N: from here on, every value depends on all positions of the map
    all others        the largest field among the inputs, for example where branches join

Fields are measured in pixels of the network's input. They may be larger than the image, which is padded with
zeros.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from clearformer.layers.geometry import ReceptiveField

aten = torch.ops.aten


class ReceptiveFields(TorchDispatchMode):
    """Inside `with ReceptiveFields(pixels) as fields`, `fields.of(tensor)` is the receptive field of one value."""

    def __init__(self, pixels: Tensor) -> None:
        super().__init__()
        self.fields, self.whole = WeakTensorKeyDictionary(), ReceptiveField(pixels.size(-1))
        self.fields[pixels] = ReceptiveField()

    def of(self, tensor: Tensor) -> ReceptiveField | None:
        return self.fields.get(tensor)

    def set_whole(self, tensor: Tensor) -> None:
        """Record that each value of `tensor`, an output of attention, depends on the whole image."""
        self.fields[tensor] = self.whole

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        sources = [tensor for tensor in tree_leaves(args) if isinstance(tensor, Tensor) and tensor in self.fields]
        if sources:
            source = max(sources, key=lambda tensor: self.fields[tensor].size)
            for tensor in tree_leaves(result):
                if isinstance(tensor, Tensor):
                    self.fields[tensor] = self.fields[source].after(*window(func, args, source, tensor))
        return result


def window(func: Any, args: Any, before: Tensor, after: Tensor) -> tuple[int, int]:
    """Return the filter size F and stride S of an operation along X in a map (…, Y, X); (1, 1) if it is pointwise."""
    if func is aten.convolution.default:
        (stride, dilation), size = (args[i][-1] for i in (3, 5)), args[1].size(-1)
        return dilation * (size - 1) + 1, stride
    if func in (aten.max_pool2d_with_indices.default, aten.avg_pool2d.default):
        return args[1][-1], (args[2] if len(args) > 2 and args[2] else args[1])[-1]
    if func is aten._adaptive_avg_pool2d.default:
        stride = before.size(-1) // after.size(-1)
        return before.size(-1) - (after.size(-1) - 1) * stride, stride
    gathers = func is aten.mean.dim or (before.dim() == 4 and after.dim() == 2)
    return (before.size(-1) if gathers and before.dim() == 4 else 1), 1

"""The summary of a model, layer by layer: output shapes, parameters, multiplications, receptive fields of images.

One forward pass is observed. On torch's meta device, where tensors have shapes and no data, nothing is allocated.

    linear           B·T · in · out
    attention        T·S · (K + N) per head: scores, then the weighted sum of values
    recurrence       B·T · the sizes of all matrices
    convolution      places · the size of a filter, for each filter
    everything else  counted as none: additions, norms and look-ups are cheap beside products
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.data.batch import ImageBatch, Tensors
from clearformer.layers.attention import MultiHeadAttention
from clearformer.layers.masks import Mask
from clearformer.layers.receptive import Sight
from clearformer.layers.recurrent import Step, Unrolled, Weights

POOLS = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d)
Hook = Callable[[nn.Module, tuple[Any, ...], Any], None]


@dataclass(frozen=True)
class LayerSummary:
    name: str
    output: list[int]
    parameters: int
    """Without those of layers inside it. A shared tensor is counted where it first occurs."""
    multiplications: int
    """In one forward pass, without those of layers inside it."""
    receptive_field: int | None = None
    """Pixels per side of the image that one output number depends on."""


def summarize(model: nn.Module, batch: Tensors) -> list[LayerSummary]:
    """Run the model once; every module that has parameters of its own, attends or pools is a row, in order of use.

    Modules that the pass does not use, such as BERT's pooler, come last, without an output. Attention cores are
    replaced for good: the model is of no use afterwards.
    """
    sight = Sight(batch.pixels) if isinstance(batch, ImageBatch) else None
    rows, handles = Rows(sight), []
    for name, module in model.named_modules():
        if isinstance(module, MultiHeadAttention):
            module.core = CountingCore(name, module, rows)
        elif type(module) is Unrolled:  # its matrices are read, not called
            handles.append(module.register_forward_hook(counting_hook(f"{name}.weights", module.weights, rows)))
        elif isinstance(module, POOLS) or any(True for _ in module.parameters(recurse=False)):
            handles.append(module.register_forward_hook(counting_hook(name, module, rows)))
    with torch.no_grad(), sight or nullcontext():
        model(batch)
    for name, module in model.named_modules():
        rows.add_unused(name, module)
    for handle in handles:
        handle.remove()
    return list(rows.by_name.values())


def counting_hook(name: str, owner: nn.Module, rows: "Rows") -> Hook:
    """A forward hook that adds a row for `owner`."""

    def count(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        first = output[0] if isinstance(output, tuple) else output  # recurrent layers return their state as well
        rows.add(name, first, multiplications(owner, first), owner)

    return count


def multiplications(module: nn.Module, output: Tensor) -> int:
    """The multiplications of a module that has weights of its own, given its output."""
    if isinstance(module, nn.Linear):
        return output.numel() * module.in_features
    if isinstance(module, nn.Conv1d | nn.Conv2d):
        return output.numel() * module.weight[0].numel()
    if isinstance(module, nn.RNNBase | Weights):  # every matrix at every time
        return output.shape[:-1].numel() * sum(p.numel() for p in module.parameters() if p.dim() == 2)
    if isinstance(module, Step):  # which returns a state of one vector or two
        return output[0].shape[:-1].numel() * module.weight_hh.numel()
    return 0


class Rows:
    """Layers in order of first use. One that is used twice, such as an embedding shared by both sides, has one row."""

    def __init__(self, sight: Sight | None = None) -> None:
        self.sight = sight
        self.by_name: dict[str, LayerSummary] = {}
        self.counted: set[int] = set()

    def add(self, name: str, output: Tensor, products: int, owner: nn.Module | None = None) -> None:
        new = [] if owner is None else [p for p in owner.parameters(recurse=False) if id(p) not in self.counted]
        self.counted.update(map(id, new))
        before = self.by_name.get(name, LayerSummary(name, [], 0, 0))
        field = None if self.sight is None else self.sight.of(output)
        self.by_name[name] = LayerSummary(
            name,
            list(output.shape),
            before.parameters + sum(p.numel() for p in new),
            before.multiplications + products,
            None if field is None else field.size,
        )

    def add_unused(self, name: str, owner: nn.Module) -> None:
        """A row for parameters that the pass did not use."""
        if any(id(p) not in self.counted for p in owner.parameters(recurse=False)):
            self.add(name, torch.empty(()), 0, owner)


class CountingCore:
    """An attention core that computes nothing but the shape of the result, and counts what computing it would cost."""

    def __init__(self, name: str, layer: MultiHeadAttention, rows: Rows) -> None:
        self.name, self.qkv, self.rows = name, layer.qkv, rows

    def lower(self, mask: Mask | None, T: int, S: int, device: torch.device) -> None:
        return None

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Any, bias: Tensor | None, scale: float | None, dropout: float
    ) -> Tensor:
        (B, H, T, K), S, N = q.shape, k.size(2), v.size(3)
        if f"{self.name}.qkv" not in self.rows.by_name:
            # Cross-attention uses the rows of qkv's matrix separately: some for x, the others for memory.
            products = (q.numel() + k.numel() + v.numel()) * self.qkv.in_features
            self.rows.add(f"{self.name}.qkv", q.new_empty(B, T, self.qkv.out_features), products, self.qkv)
        z = q.new_empty(B, H, T, N)
        if self.rows.sight is not None:
            self.rows.sight.sees_all(z)
        self.rows.add(f"{self.name}.core", z, B * H * T * S * (K + N))
        return z

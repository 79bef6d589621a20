"""Summarise a model layer by layer: output shape, parameters, multiply-adds and, in image models, receptive field.

This takes one forward pass. On torch's meta device, where tensors have shapes but no data, nothing is allocated.

    linear           B·T · in · out multiply-adds
    attention        B·T·S · (K + N) per head: attention scores, then the weighted sum of values
    recurrence       B·T · the sizes of all matrices
    convolution      positions · filter size · number of filters
    everything else  0: additions, norms and look-ups are cheap compared with matrix products
"""

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearformer.data.batch import ImageBatch, Tensors
from clearformer.layers.attention import MultiHeadAttention
from clearformer.layers.masks import Mask
from clearformer.layers.receptive import ReceptiveFields
from clearformer.layers.recurrent import Step, Unrolled, Weights

POOLS = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d)
Hook = Callable[[nn.Module, tuple[Any, ...], Any], None]


@dataclass(frozen=True)
class LayerSummary:
    name: str
    output: list[int]
    parameters: int
    """The number of parameters, excluding submodules. A tied tensor is counted where it first occurs."""
    multiply_adds: int
    """The multiply-adds of one forward pass, excluding submodules."""
    receptive_field: int | None = None
    """Pixels per side of the image region that one output position depends on."""

    @property
    def multiplications(self) -> int:
        """Deprecated: use multiply_adds."""
        warnings.warn("LayerSummary.multiplications is deprecated: use multiply_adds", DeprecationWarning, stacklevel=2)
        return self.multiply_adds


def summarize(model: nn.Module, batch: Tensors) -> list[LayerSummary]:
    """Run the model once. Returns a row for each module with parameters, attention or pooling, in order of use.

    Modules that the forward pass does not use, such as BERT's pooler, come last, without an output. Attention cores are
    replaced and not restored: the model cannot be used afterwards.
    """
    receptive = ReceptiveFields(batch.pixels) if isinstance(batch, ImageBatch) else None
    rows, handles = Rows(receptive), []
    for name, module in model.named_modules():
        if isinstance(module, MultiHeadAttention):
            module.core = CountingCore(name, module, rows)
        elif type(module) is Unrolled:  # its weights are accessed directly, not called as a module
            handles.append(module.register_forward_hook(counting_hook(f"{name}.weights", module.weights, rows)))
        elif isinstance(module, POOLS) or any(True for _ in module.parameters(recurse=False)):
            handles.append(module.register_forward_hook(counting_hook(name, module, rows)))
    with torch.no_grad(), receptive or nullcontext():
        model(batch)
    for name, module in model.named_modules():
        rows.add_unused(name, module)
    for handle in handles:
        handle.remove()
    return list(rows.by_name.values())


def counting_hook(name: str, owner: nn.Module, rows: "Rows") -> Hook:
    """Return a forward hook that adds a row for `owner`."""

    def count(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        first = output[0] if isinstance(output, tuple) else output  # recurrent layers return their state as well
        rows.add(name, first, count_multiply_adds(owner, first), owner)

    return count


def count_multiply_adds(module: nn.Module, output: Tensor) -> int:
    """Count the multiply-adds of a module with weights, from the shape of its output."""
    if isinstance(module, nn.Linear):
        return output.numel() * module.in_features
    if isinstance(module, nn.Conv1d | nn.Conv2d):
        return output.numel() * module.weight[0].numel()
    if isinstance(module, nn.RNNBase | Weights):  # every matrix at every time step
        return output.shape[:-1].numel() * sum(p.numel() for p in module.parameters() if p.dim() == 2)
    if isinstance(module, Step):  # returns a state of one vector or two
        return output[0].shape[:-1].numel() * module.weight_hh.numel()
    return 0


class Rows:
    """The rows of a summary, in order of first use. A layer used twice, such as a tied embedding, has one row."""

    def __init__(self, receptive: ReceptiveFields | None = None) -> None:
        self.receptive = receptive
        self.by_name: dict[str, LayerSummary] = {}
        self.counted: set[int] = set()

    def add(self, name: str, output: Tensor, multiply_adds: int, owner: nn.Module | None = None) -> None:
        new = [] if owner is None else [p for p in owner.parameters(recurse=False) if id(p) not in self.counted]
        self.counted.update(map(id, new))
        before = self.by_name.get(name, LayerSummary(name, [], 0, 0))
        field = None if self.receptive is None else self.receptive.of(output)
        self.by_name[name] = LayerSummary(
            name,
            list(output.shape),
            before.parameters + sum(p.numel() for p in new),
            before.multiply_adds + multiply_adds,
            None if field is None else field.size,
        )

    def add_unused(self, name: str, owner: nn.Module) -> None:
        """Add a row for a module whose parameters the forward pass did not use."""
        if any(id(p) not in self.counted for p in owner.parameters(recurse=False)):
            self.add(name, torch.empty(()), 0, owner)


class CountingCore:
    """An attention core that returns an empty tensor of the right shape and counts the multiply-adds."""

    def __init__(self, name: str, layer: MultiHeadAttention, rows: Rows) -> None:
        self.name, self.qkv, self.rows = name, layer.qkv, rows

    def lower(self, mask: Mask | None, T: int, S: int, device: torch.device, dtype: torch.dtype | None = None) -> None:
        return None

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Any, bias: Tensor | None, scale: float | None, dropout: float
    ) -> Tensor:
        (B, H, T, K), S, N = q.shape, k.size(2), v.size(3)
        if f"{self.name}.qkv" not in self.rows.by_name:
            # Cross-attention applies the rows of the qkv matrix separately: some to x, the others to memory.
            multiply_adds = (q.numel() + k.numel() + v.numel()) * self.qkv.in_features
            self.rows.add(f"{self.name}.qkv", q.new_empty(B, T, self.qkv.out_features), multiply_adds, self.qkv)
        z = q.new_empty(B, H, T, N)
        if self.rows.receptive is not None:
            self.rows.receptive.set_whole(z)
        self.rows.add(f"{self.name}.core", z, B * H * T * S * (K + N))
        return z

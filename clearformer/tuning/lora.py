"""LoRA: a trained low-rank product added to a frozen matrix product (Hu et al. 2021).

    y = x W' + b + (α/R) · (x A') B'            A (R, in), B (out, R), with R far smaller than in and out

B starts at zero, so a freshly adapted model computes the same as before; A is initialised as in the code of Hu et al.
The update of W has rank R: it has few parameters to train, save and switch, and costs nothing once added to W.

Attention stores Wq, Wk and Wv as rows of one matrix, `qkv`. A pair (A, B) may cover only some rows of a layer, so that
`attn.q` adapts only the queries. adapters.py adds pairs to the layers of a model.
"""

from collections.abc import Callable
from math import sqrt
from typing import Any, Self

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from clearformer.config import Config
from clearformer.layers.linear import Linear


class LoraConfig(Config):
    """The settings of a LoRA adapter. A target is the end of a layer name: attn.q, mlp.up, blocks.*.attn.out."""

    rank: int = Field(8, gt=0, description="rank R of the update: rows of A, columns of B")
    alpha: float = Field(16.0, gt=0, description="scale α of the update, which is multiplied by alpha / rank")
    targets: tuple[str, ...] = Field(
        ("q", "v"), min_length=1, description="layers to adapt, given by the ends of their names: q, attn.out, mlp.up"
    )
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout probability on the input of A")


class Pair(nn.Module):
    """The update (α/R) · (x A') B', which is added to features `start` to `stop` of a layer's output."""

    def __init__(self, like: Tensor, start: int, stop: int, config: LoraConfig) -> None:
        super().__init__()
        self.start, self.stop = start, stop
        self.alpha, self.scale, self.dropout = config.alpha, config.alpha / config.rank, config.dropout
        self.A = nn.Parameter(like.new_empty(config.rank, like.size(1)))
        self.B = nn.Parameter(like.new_zeros(stop - start, config.rank))
        nn.init.kaiming_uniform_(self.A, a=sqrt(5))

    def forward(self, x: Tensor, start: int, stop: int) -> Tensor:
        """Compute features `start` to `stop` of the layer's update: x (…, in) -> (…, stop − start)."""
        rows = self.B[start - self.start : stop - self.start]
        return F.linear(F.linear(F.dropout(x, self.dropout, self.training), self.A), rows) * self.scale

    def product(self) -> Tensor:
        """Return (α/R) B A, of shape (stop − start, in), in float32 or higher precision."""
        exact = torch.promote_types(self.A.dtype, torch.float32)
        return self.B.to(exact) @ self.A.to(exact) * self.scale


class LoraLinear(Linear):
    """A Linear with named adapters of one or more pairs each. Only the active one applies. W and b keep their names."""

    active: str | None

    @classmethod
    def of(cls, layer: nn.Linear) -> Self:
        """Convert a layer so that it can hold adapters. Its parameters are reused, not copied."""
        adapted = cls.__new__(cls)
        adapted.__dict__.update(layer.__dict__, _modules={}, active=None)
        return adapted

    def add(self, name: str, part: str, pair: Pair) -> None:
        """Add a pair to the child lora_<name>. Without `lora_`, a name such as `weight` would shadow an attribute."""
        if f"lora_{name}" not in self._modules:
            self.add_module(f"lora_{name}", nn.ModuleDict())
        self.get_submodule(f"lora_{name}").add_module(part, pair)

    def pairs(self, name: str | None) -> dict[str, Any]:
        """Return the pairs of an adapter, by the part of this layer that they adapt; empty if there are none."""
        pairs = self._modules.get(f"lora_{name}")
        return {} if pairs is None else dict(pairs.named_children())

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x, 0, self.out_features)

    def part(self, x: Tensor, start: int, stop: int) -> Tensor:
        y = super().part(x, start, stop)
        for pair in self.pairs(self.active).values():
            low, high = max(start, pair.start), min(stop, pair.stop)
            if low < high:
                y.narrow(-1, low - start, high - low).add_(pair(x, low, high))
        return y


class MergedLinear(Linear):
    """A plain Linear whose weight is W + (α/R) B A. It keeps the original layer, but not as a child module."""

    adapted: LoraLinear

    @classmethod
    def of(cls, layer: LoraLinear) -> Self:
        """Merge the active adapter. A layer without active pairs keeps its weight tensor, which may be tied."""
        parameters, pairs = dict(layer._parameters), layer.pairs(layer.active)
        if pairs:
            weight = layer.weight.detach().to(torch.promote_types(layer.weight.dtype, torch.float32), copy=True)
            for pair in pairs.values():
                weight[pair.start : pair.stop] += pair.product().detach()
            parameters["weight"] = nn.Parameter(weight.to(layer.weight.dtype), layer.weight.requires_grad)
        merged = cls.__new__(cls)
        merged.__dict__.update(layer.__dict__, _modules={}, _parameters=parameters, adapted=layer)
        return merged

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        self.adapted._apply(fn, recurse)  # the original layer moves to the same device and dtype
        return super()._apply(fn, recurse)

"""LoRA: a frozen matrix product, and beside it a narrow one that learns (Hu et al. 2021).

    y = x W' + b + (α/R) · (x A') B'            A (R, in), B (out, R), with R far smaller than in and out

B begins at zero, so that an adapted model begins as the model it was, and A as Hu et al.'s own code draws it. The
change of W has rank R: few numbers to train, to keep and to switch, and none at all to compute once it is added to W.

Attention keeps Wq, Wk and Wv as rows of one matrix, `qkv`; a pair may sit on some rows of a layer, so that `attn.q`
adapts the queries alone. adapters.py puts pairs on the layers of a model.
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
    """One adapter. `targets` are ends of names, such as attn.q, cross.v, mlp.up or decoder.blocks.*.attn.out."""

    rank: int = Field(8, gt=0, description="R: columns of B, rows of A")
    alpha: float = Field(16.0, gt=0, description="the pair's product is scaled by alpha / rank")
    targets: tuple[str, ...] = Field(("q", "v"), min_length=1, description="q and v of every attention, if not given")
    dropout: float = Field(0.0, ge=0, lt=1, description="on what A reads, while training")


class Pair(nn.Module):
    """(α/R) · (x A') B', for the rows `start` to `stop` of a layer's output."""

    def __init__(self, like: Tensor, start: int, stop: int, config: LoraConfig) -> None:
        super().__init__()
        self.start, self.stop = start, stop
        self.alpha, self.scale, self.dropout = config.alpha, config.alpha / config.rank, config.dropout
        self.A = nn.Parameter(like.new_empty(config.rank, like.size(1)))
        self.B = nn.Parameter(like.new_zeros(stop - start, config.rank))
        nn.init.kaiming_uniform_(self.A, a=sqrt(5))

    def forward(self, x: Tensor, start: int, stop: int) -> Tensor:
        """x (…, in) -> (…, stop − start), rows counted as the layer counts them."""
        rows = self.B[start - self.start : stop - self.start]
        return F.linear(F.linear(F.dropout(x, self.dropout, self.training), self.A), rows) * self.scale

    def product(self) -> Tensor:
        """(α/R) B A, in float32 at least, (stop − start, in)."""
        exact = torch.promote_types(self.A.dtype, torch.float32)
        return self.B.to(exact) @ self.A.to(exact) * self.scale


class LoraLinear(Linear):
    """A Linear with named adapters, each a few pairs, of which `active` computes. W and b keep their names."""

    active: str | None

    @classmethod
    def of(cls, layer: nn.Linear) -> Self:
        """The same layer, sharing its parameters, with room for adapters."""
        adapted = cls.__new__(cls)
        adapted.__dict__.update(layer.__dict__, _modules={}, active=None)
        return adapted

    def add(self, name: str, part: str, pair: Pair) -> None:
        """Prefixed, since a child called `weight` or `train` would hide what a layer has by that name."""
        if f"lora_{name}" not in self._modules:
            self.add_module(f"lora_{name}", nn.ModuleDict())
        self.get_submodule(f"lora_{name}").add_module(part, pair)

    def pairs(self, name: str | None) -> dict[str, Any]:
        """The pairs of an adapter by the part they sit on; none if it has none here."""
        own = self._modules.get(f"lora_{name}")
        return {} if own is None else dict(own.named_children())

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
    """A plain Linear with W + (α/R) B A for its weight. It keeps, out of sight, the layer it was made of."""

    adapted: LoraLinear

    @classmethod
    def of(cls, layer: LoraLinear) -> Self:
        """A layer without pairs to add keeps its very weight, which another layer may share."""
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
        self.adapted._apply(fn, recurse)  # what is kept moves along to another device or type
        return super()._apply(fn, recurse)

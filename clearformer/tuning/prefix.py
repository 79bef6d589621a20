"""Prefix tuning: P learned keys and values before the real ones, in every attention (Li & Liang 2021).

    z = softmax(q [Pk; K]' · scale + [0; bias]) [Pv; V]           Pk (G, P, K), Pv (G, P, N), a pair for each layer

Nothing else learns. Every query sees the whole prefix, which has no position: no mask hides it, no bias or rotation
moves it. Caches hold real keys alone, and the prefix joins them inside the core: decoding needs to know nothing of it.

    add_prefix(model, PrefixConfig(length=10))     self-attention on both sides, and cross-attention
    fold(model)                                    after training by way of an MLP: plain keys and values
    load_prefix(model, prefix_weights(other))      a prefix by itself, as a flat dictionary
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from clearformer.config import Config
from clearformer.errors import CheckpointError, ConfigError
from clearformer.layers.attention import Core, MultiHeadAttention
from clearformer.layers.masks import Mask
from clearformer.tuning.freeze import freeze

LOUDNESS = 0.02  # standard deviation of a fresh prefix
PREFIX, TRUNKS = "prefix", "prefix_trunks"  # children: of each attention layer; of a model that trains by MLPs


class PrefixConfig(Config):
    """A prefix of `length` in every attention."""

    length: int = Field(10, gt=0, description="P: learned keys and values a layer")
    d_hidden: int | None = Field(None, gt=0, description="features of the MLP to train by way of; none trains directly")


class Prefix(nn.Module):
    """Pk and Pv as they are. k (G, P, K), v (G, P, N)."""

    def __init__(self, k: Tensor, v: Tensor) -> None:
        super().__init__()
        self.k, self.v = nn.Parameter(k), nn.Parameter(v)

    def forward(self) -> tuple[Tensor, Tensor]:
        return self.k, self.v


class Trunk(nn.Module):
    """tanh(E W' + b): what the prefixes of equal layers in a stack have in common. E (P, D) -> (P, d_hidden)."""

    def __init__(self, length: int, d_model: int, d_hidden: int, like: Tensor) -> None:
        super().__init__()
        self.table = nn.Parameter(nn.init.normal_(like.new_empty(length, d_model)))
        self.up = nn.Linear(d_model, d_hidden, device=like.device, dtype=like.dtype)

    def forward(self) -> Tensor:
        return torch.tanh(self.up(self.table))


class MadePrefix(nn.Module):
    """Pk and Pv as an MLP makes them, steadier to train than themselves; each layer has its rows of the last matrix.

    [Pk; Pv] = W2 tanh(W1 E' + b1) + b2                       Li & Liang 2021, section 4.3
    """

    trunk: Trunk

    def __init__(self, trunk: Trunk, layer: MultiHeadAttention, like: Tensor) -> None:
        super().__init__()
        self.__dict__["trunk"] = trunk  # a child of the model, not of each layer that uses it
        self.n_heads, self.widths = layer.n_kv_heads, (layer.d_head, layer.d_value)
        n_features = self.n_heads * sum(self.widths)
        self.down = nn.Linear(trunk.up.out_features, n_features, device=like.device, dtype=like.dtype)

    def forward(self) -> tuple[Tensor, Tensor]:
        heads = self.down(self.trunk()).unflatten(-1, (self.n_heads, -1)).transpose(0, 1)  # (G, P, K + N)
        k, v = heads.split(self.widths, dim=-1)
        return k, v


@dataclass(frozen=True, eq=False)
class Prepended(Mask):
    """s < P, or what `rule` says of key s − P."""

    rule: Mask
    length: int

    def allow(self, b: Tensor, t: Tensor, s: Tensor) -> Tensor:
        return (s < self.length) | self.rule.allow(b, t, (s - self.length).clamp(min=0))

    def tensors(self) -> list[Tensor]:
        return self.rule.tensors()


class PrefixCore:
    """Another core, shown P more keys and values. The prefix is a child of its attention layer, not of the core."""

    def __init__(self, core: Core, prefix: nn.Module, length: int) -> None:
        self.core, self.prefix, self.length = core, prefix, length

    def lowers_like(self, other: Core) -> bool:
        """A stack lowers once for prefixes of one length around one core."""
        return isinstance(other, PrefixCore) and other.length == self.length and other.core is self.core

    def lower(self, mask: Mask | None, T: int, S: int, device: torch.device) -> Any:
        longer = None if mask is None else Prepended(mask, self.length)
        return self.core.lower(longer, T, self.length + S, device)

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Any, bias: Tensor | None, scale: float | None, dropout: float
    ) -> Tensor:
        if bias is not None:
            bias = F.pad(bias.expand(*bias.shape[:-1], k.size(2)), (self.length, 0))
        k, v = (
            torch.cat([prefix.to(real.dtype).expand(real.size(0), -1, -1, -1), real], dim=2)  # (B, G, P + S, K)
            for prefix, real in zip(self.prefix(), (k, v))
        )
        return self.core(q, k, v, mask, bias, scale, dropout)


def add_prefix(model: nn.Module, config: PrefixConfig) -> nn.Module:
    """Put a fresh prefix before the keys of every attention, and let nothing else learn."""
    layers = bare_layers(model)
    trunks: dict[str, Any] = {}
    for name, layer in layers.items():
        weight = layer.qkv.weight
        if config.d_hidden is None:
            keys = weight.new_empty(layer.n_kv_heads, config.length, layer.d_head)
            values = weight.new_empty(layer.n_kv_heads, config.length, layer.d_value)
            prefix: nn.Module = Prefix(*(nn.init.normal_(x, std=LOUDNESS) for x in (keys, values)))
        else:
            kind = "-".join(word for word in name.split(".") if not word.isdigit())  # encoder-blocks-attn, say
            if kind not in trunks:
                trunks[kind] = Trunk(config.length, layer.qkv.in_features, config.d_hidden, weight.detach())
            prefix = MadePrefix(trunks[kind], layer, weight.detach())
        attach(layer, prefix, config.length)
    if trunks:
        model.add_module(TRUNKS, nn.ModuleDict(trunks))
    freeze(model, is_prefix)
    return model


def fold(model: nn.Module) -> nn.Module:
    """Keep the keys and values that the MLPs make, and let the MLPs go."""
    for layer in prefixed_layers(model).values():
        plain, length = Prefix(*(made.detach().clone() for made in layer.prefix())), layer.core.length
        layer.core = layer.core.core
        attach(layer, plain, length)
    model._modules.pop(TRUNKS, None)
    return model


def remove_prefix(model: nn.Module) -> nn.Module:
    """The model as it was, though still frozen."""
    for layer in prefixed_layers(model).values():
        layer.core = layer.core.core
        del layer.prefix
    model._modules.pop(TRUNKS, None)
    return model


@torch.no_grad()
def prefix_weights(model: nn.Module) -> dict[str, Tensor]:
    """A prefix by itself: encoder.blocks.0.attn.k (G, P, K), encoder.blocks.0.attn.v (G, P, N) and so on."""
    return {
        f"{name}.{side}": made.detach().clone()
        for name, layer in prefixed_layers(model).items()
        for side, made in zip("kv", layer.prefix())
    }


def load_prefix(model: nn.Module, weights: Mapping[str, Tensor], where: str = "the prefix") -> nn.Module:
    """Put a prefix that `prefix_weights` gave before the keys of a model that has none."""
    layers = bare_layers(model)
    expected = {f"{name}.{side}" for name in layers for side in "kv"}
    for problem, names in (("lacks", expected - set(weights)), ("has an unknown", set(weights) - expected)):
        if names:
            raise CheckpointError(f"{where} {problem} `{min(names)}`", "it belongs to another model")
    first = next(iter(weights.values()))
    length = first.size(1) if first.dim() == 3 else 0
    for name, layer in layers.items():
        for side, width in (("k", layer.d_head), ("v", layer.d_value)):
            shape, wanted = tuple(weights[f"{name}.{side}"].shape), (layer.n_kv_heads, length, width)
            if shape != wanted:
                raise CheckpointError(
                    f"{where} does not fit: `{name}.{side}` is {shape}, not {wanted}", "it belongs to another model"
                )
    for name, layer in layers.items():
        attach(layer, Prefix(*(weights[f"{name}.{side}"].to(layer.qkv.weight, copy=True) for side in "kv")), length)
    freeze(model, is_prefix)
    return model


def is_prefix(parameter: str) -> bool:
    """For `freeze`."""
    return not {PREFIX, TRUNKS}.isdisjoint(parameter.split("."))


def attach(layer: Any, prefix: nn.Module, length: int) -> None:
    layer.add_module(PREFIX, prefix.train(layer.training))
    layer.core = PrefixCore(layer.core, prefix, length)


def attentions(model: nn.Module) -> dict[str, Any]:
    layers = {name: module for name, module in model.named_modules() if isinstance(module, MultiHeadAttention)}
    if not layers:
        raise ConfigError(
            "the model does not attend, so nothing can stand before its keys",
            "tune all its weights instead: method full",
        )
    return layers


def bare_layers(model: nn.Module) -> dict[str, Any]:
    layers = attentions(model)
    if any(isinstance(layer.core, PrefixCore) for layer in layers.values()):
        raise ConfigError("the model has a prefix already", "remove_prefix(model) first")
    return layers


def prefixed_layers(model: nn.Module) -> dict[str, Any]:
    layers = attentions(model)
    if not all(isinstance(layer.core, PrefixCore) for layer in layers.values()):
        raise ConfigError("the model has no prefix", "add one first: add_prefix(model, PrefixConfig())")
    return layers

"""Prefix tuning: each attention layer gets P learned keys and values before its own (Li & Liang 2021).

    z = softmax(q [Pk; K]' · scale + [0; bias]) [Pv; V]           Pk (G, P, K), Pv (G, P, N), one pair per layer

Everything else is frozen. Every query sees the whole prefix, which has no position: no mask, bias or rotation applies
to it. Caches hold only keys of the input; the attention core prepends the prefix, so decoding code is unchanged.

    add_prefix(model, PrefixConfig(length=10))     add a prefix to all self-attention and cross-attention
    fold(model)                                    after training with an MLP: replace it by plain keys and values
    load_prefix(model, prefix_weights(other))      copy the weights of a prefix, as a flat dictionary
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

INIT_STD = 0.02  # standard deviation of a fresh prefix
PREFIX, TRUNKS = "prefix", "prefix_trunks"  # child modules: of an attention layer; of a model with MLPs


class PrefixConfig(Config):
    """The [tuning.prefix] table of a recipe: settings of prefix tuning."""

    length: int = Field(10, gt=0, description="prefix length P: number of learned keys and values per attention layer")
    d_hidden: int | None = Field(
        None, gt=0, description="hidden width of an MLP that computes the prefix in training; default: no MLP"
    )


class Prefix(nn.Module):
    """A prefix whose keys Pk (G, P, K) and values Pv (G, P, N) are parameters."""

    def __init__(self, k: Tensor, v: Tensor) -> None:
        super().__init__()
        self.k, self.v = nn.Parameter(k), nn.Parameter(v)

    def forward(self) -> tuple[Tensor, Tensor]:
        return self.k, self.v


class Trunk(nn.Module):
    """The part of the MLP that all layers of a stack have in common: tanh(E W' + b), from E (P, D) to (P, d_hidden)."""

    def __init__(self, length: int, d_model: int, d_hidden: int, like: Tensor) -> None:
        super().__init__()
        self.table = nn.Parameter(nn.init.normal_(like.new_empty(length, d_model)))
        self.up = nn.Linear(d_model, d_hidden, device=like.device, dtype=like.dtype)

    def forward(self) -> Tensor:
        return torch.tanh(self.up(self.table))


class ReparameterisedPrefix(nn.Module):
    """A prefix computed by an MLP, which trains more stably than plain parameters. Each layer has its own W2 and b2.

    [Pk; Pv] = W2 tanh(W1 E' + b1) + b2                       Li & Liang 2021, section 4.3
    """

    trunk: Trunk

    def __init__(self, trunk: Trunk, layer: MultiHeadAttention, like: Tensor) -> None:
        super().__init__()
        self.__dict__["trunk"] = trunk  # registered as a child of the model, not of each layer that uses it
        self.n_heads, self.widths = layer.n_kv_heads, (layer.d_head, layer.d_value)
        n_features = self.n_heads * sum(self.widths)
        self.down = nn.Linear(trunk.up.out_features, n_features, device=like.device, dtype=like.dtype)

    def forward(self) -> tuple[Tensor, Tensor]:
        heads = self.down(self.trunk()).unflatten(-1, (self.n_heads, -1)).transpose(0, 1)  # (G, P, K + N)
        k, v = heads.split(self.widths, dim=-1)
        return k, v


@dataclass(frozen=True, eq=False)
class Prepended(Mask):
    """A mask that allows key s if it is in the prefix, s < P, or if `rule` allows key s − P."""

    rule: Mask
    length: int

    def allow(self, b: Tensor, t: Tensor, s: Tensor) -> Tensor:
        return (s < self.length) | self.rule.allow(b, t, (s - self.length).clamp(min=0))

    def tensors(self) -> list[Tensor]:
        return self.rule.tensors()


class PrefixCore:
    """An attention core that prepends P keys and values, then calls `core`. The attention layer owns the prefix."""

    def __init__(self, core: Core, prefix: nn.Module, length: int) -> None:
        self.core, self.prefix, self.length = core, prefix, length

    def lowers_like(self, other: Core) -> bool:
        """Whether both cores can use one lowered mask: they have equal prefix lengths and the same inner core."""
        return isinstance(other, PrefixCore) and other.length == self.length and other.core is self.core

    def lower(self, mask: Mask | None, T: int, S: int, device: torch.device, dtype: torch.dtype | None = None) -> Any:
        longer = None if mask is None else Prepended(mask, self.length)
        return self.core.lower(longer, T, self.length + S, device, dtype)

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
    """Prepend a fresh prefix to the keys and values of every attention layer, and freeze everything else."""
    layers = bare_layers(model)
    trunks: dict[str, Any] = {}
    for name, layer in layers.items():
        weight = layer.qkv.weight
        if config.d_hidden is None:
            keys = weight.new_empty(layer.n_kv_heads, config.length, layer.d_head)
            values = weight.new_empty(layer.n_kv_heads, config.length, layer.d_value)
            prefix: nn.Module = Prefix(*(nn.init.normal_(x, std=INIT_STD) for x in (keys, values)))
        else:
            group = "-".join(word for word in name.split(".") if not word.isdigit())  # such as encoder-blocks-attn
            if group not in trunks:
                trunks[group] = Trunk(config.length, layer.qkv.in_features, config.d_hidden, weight.detach())
            prefix = ReparameterisedPrefix(trunks[group], layer, weight.detach())
        attach(layer, prefix, config.length)
    if trunks:
        model.add_module(TRUNKS, nn.ModuleDict(trunks))
    freeze(model, is_prefix)
    return model


def fold(model: nn.Module) -> nn.Module:
    """Replace the MLPs by the keys and values that they compute."""
    for layer in prefixed_layers(model).values():
        plain, length = Prefix(*(tensor.detach().clone() for tensor in layer.prefix())), layer.core.length
        layer.core = layer.core.core
        attach(layer, plain, length)
    model._modules.pop(TRUNKS, None)
    return model


def remove_prefix(model: nn.Module) -> nn.Module:
    """Remove the prefix. The parameters of the model stay frozen."""
    for layer in prefixed_layers(model).values():
        layer.core = layer.core.core
        del layer.prefix
    model._modules.pop(TRUNKS, None)
    return model


@torch.no_grad()
def prefix_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights of a prefix: encoder.blocks.0.attn.k (G, P, K), encoder.blocks.0.attn.v (G, P, N) …"""
    return {
        f"{name}.{side}": tensor.detach().clone()
        for name, layer in prefixed_layers(model).items()
        for side, tensor in zip("kv", layer.prefix())
    }


def load_prefix(model: nn.Module, weights: Mapping[str, Tensor], where: str = "the prefix") -> nn.Module:
    """Add a prefix, with weights from `prefix_weights`, to a model that has no prefix yet."""
    layers = bare_layers(model)
    expected = {f"{name}.{side}" for name in layers for side in "kv"}
    for problem, names in (("lacks", expected - set(weights)), ("has an unknown tensor", set(weights) - expected)):
        if names:
            raise CheckpointError(f"{where} {problem} `{min(names)}`", "the prefix belongs to another model")
    first = next(iter(weights.values()))
    length = first.size(1) if first.dim() == 3 else 0
    for name, layer in layers.items():
        for side, width in (("k", layer.d_head), ("v", layer.d_value)):
            shape, expected_shape = tuple(weights[f"{name}.{side}"].shape), (layer.n_kv_heads, length, width)
            if shape != expected_shape:
                raise CheckpointError(
                    f"{where} does not fit: `{name}.{side}` has the shape {shape}, not {expected_shape}",
                    "the prefix belongs to another model",
                )
    for name, layer in layers.items():
        attach(layer, Prefix(*(weights[f"{name}.{side}"].to(layer.qkv.weight, copy=True) for side in "kv")), length)
    freeze(model, is_prefix)
    return model


def is_prefix(parameter: str) -> bool:
    """Whether the parameter of this name belongs to a prefix; a predicate for `freeze`."""
    return not {PREFIX, TRUNKS}.isdisjoint(parameter.split("."))


def attach(layer: Any, prefix: nn.Module, length: int) -> None:
    layer.add_module(PREFIX, prefix.train(layer.training))
    layer.core = PrefixCore(layer.core, prefix, length)


def attentions(model: nn.Module) -> dict[str, Any]:
    layers = {name: module for name, module in model.named_modules() if isinstance(module, MultiHeadAttention)}
    if not layers:
        raise ConfigError(
            "the model has no attention layers, so prefix tuning does not apply",
            "use another method: --method full",
        )
    return layers


def bare_layers(model: nn.Module) -> dict[str, Any]:
    layers = attentions(model)
    if any(isinstance(layer.core, PrefixCore) for layer in layers.values()):
        raise ConfigError("the model already has a prefix", "call remove_prefix(model) first")
    return layers


def prefixed_layers(model: nn.Module) -> dict[str, Any]:
    layers = attentions(model)
    if not all(isinstance(layer.core, PrefixCore) for layer in layers.values()):
        raise ConfigError("the model has no prefix", "add one first: add_prefix(model, PrefixConfig())")
    return layers

"""One pass of a Transformer for several batches, and only for the hypotheses that exist.

    tokens of L₁ ≤ B₁W₁, L₂ ≤ B₂W₂, … hypotheses   ->   one row of all tokens, (1, ΣL)   ->   logits (1, ΣL, V)

Linear layers, norms and the head treat every token by itself, so they need not know its batch: one product serves all.
Only attention is computed batch by batch. The state of each batch is an `OpenState`; a `JoinedState` shows all of them
to the model, with lists in place of keys and values, and `JoinedCore` is the attention core that takes these lists. The
row may end with padding, for which attention is zero.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.layers.attention import Core, MultiHeadAttention
from clearformer.layers.blocks import Stack, lower_alike
from clearformer.layers.masks import Mask, Padding
from clearformer.layers.open_cache import OpenCache, OpenState
from clearformer.layers.positions import Positions

LAYERS: WeakKeyDictionary[nn.Module, list[MultiHeadAttention]] = WeakKeyDictionary()


class Parts(list[Tensor]):
    """The keys, values or flags of several batches, where a model expects one tensor."""

    def __init__(self, parts: Iterable[Tensor], states: Sequence[OpenState]) -> None:
        super().__init__(parts)
        self.states = states

    def size(self, dim: int) -> int:
        return 0  # only for the size of a mask, which every part knows


@dataclass(frozen=True, eq=False)
class JoinedMask(Mask):
    """The masks of several batches, in the order of their tokens."""

    masks: Sequence[Mask]
    states: Sequence[OpenState]


class JoinedCache:
    def __init__(self, caches: Sequence[OpenCache]) -> None:
        self.caches, self.length = caches, 0

    def append(self, k: Tensor, v: Tensor) -> tuple[Parts, Parts]:
        """Write k and v (1, G, ΣL, K) to the caches of all batches; returns the keys and values of each."""
        states = [cache.state for cache in self.caches]
        both = zip(self.caches, divided(k, states), divided(v, states))
        pairs = [cache.append_live(*new) for cache, *new in both]
        return Parts((k for k, _ in pairs), states), Parts((v for _, v in pairs), states)


class JoinedState:
    """The states of several batches, as a state of one row with ΣL hypotheses."""

    slots = None  # positions of keys are for biases on the scores, which `can_join` excludes

    def __init__(self, states: Sequence[OpenState], n_padding: int = 0) -> None:
        self.states, self.n_padding = states, n_padding
        self.caches = [JoinedCache(caches) for caches in zip(*(state.caches for state in states))]

    @property
    def memory(self) -> list[tuple[Parts, Parts]] | None:
        if self.states[0].memory is None:
            return None
        layers = zip(*(state.memory or () for state in self.states))
        return [
            (Parts((k for k, _ in pairs), self.states), Parts((v for _, v in pairs), self.states)) for pairs in layers
        ]

    @property
    def memory_keys(self) -> Parts | None:
        keys = [state.memory_keys for state in self.states]
        return None if keys[0] is None else Parts((part for part in keys if part is not None), self.states)

    def grow(self, n_rows: int, width: int) -> tuple[Tensor, Mask]:
        grown = [state.grow(state.n, state.width) for state in self.states]
        where = torch.cat([state.pick(where.flatten()) for state, (where, _) in zip(self.states, grown)])[None]
        return F.pad(where, (0, self.n_padding)), JoinedMask([mask for _, mask in grown], self.states)


class JoinedCore:
    """An attention core that calls another one for each batch, and for anything else as it is."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def lowers_like(self, other: Core) -> bool:
        return isinstance(other, JoinedCore) and lower_alike(self.core, other.core)

    def lower(self, mask: Mask | None, T: int, S: int, device: torch.device, dtype: torch.dtype | None = None) -> Any:
        if isinstance(mask, JoinedMask):
            sizes = [(one, state.width, state.n_slots) for one, state in zip(mask.masks, mask.states)]
            return [self.core.lower(one, width, n_slots, device, dtype) for one, width, n_slots in sizes]
        if isinstance(mask, Padding) and isinstance(mask.keys, Parts):
            parts = zip(mask.keys, mask.keys.states)
            return [self.core.lower(Padding(keys), state.width, keys.size(1), device, dtype) for keys, state in parts]
        return self.core.lower(mask, T, S, device, dtype)

    def __call__(
        self, q: Tensor, k: Any, v: Any, mask: Any, bias: Tensor | None, scale: float | None, dropout: float
    ) -> Tensor:
        if not isinstance(k, Parts):
            return self.core(q, k, v, mask, bias, scale, dropout)
        outputs = []
        for state, new, keys, values, hidden in zip(k.states, divided(q, k.states), k, v, mask):
            queries = state.spread(new).transpose(1, 2)  # (B, H, W, K)
            z = self.core(queries, keys, values, hidden, bias, scale, dropout)
            outputs.append(state.pick(z.transpose(1, 2).flatten(0, 1)))
        n_padding = q.size(2) - sum(map(len, outputs))
        if n_padding:
            outputs.append(outputs[0].new_zeros(n_padding, *outputs[0].shape[1:]))
        return torch.cat(outputs)[None].transpose(1, 2)  # (1, H, ΣL, N)


def divided(x: Tensor, states: Sequence[OpenState]) -> Sequence[Tensor]:
    """Return the parts of x (1, H, ΣL, K) that belong to each batch: (L, H, K)."""
    sizes = [state.n_live for state in states]
    return x[0].transpose(0, 1)[: sum(sizes)].split(sizes)


def can_join(model: nn.Module) -> bool:
    """Whether a model can read several batches in one pass: a Transformer without biases on its attention scores."""
    decoder = getattr(model, "decoder", None)
    return isinstance(decoder, Stack) and type(decoder.positions).bias is Positions.bias


def attention_layers(decoder: Any) -> list[MultiHeadAttention]:
    if decoder not in LAYERS:  # to look through all modules at every step would take a percent of its time
        LAYERS[decoder] = [module for module in decoder.modules() if isinstance(module, MultiHeadAttention)]
    return LAYERS[decoder]


@contextmanager
def joined_cores(model: nn.Module) -> Iterator[None]:
    """Let the decoder of a model take joined states. Other threads may use the model meanwhile, as always."""
    layers = attention_layers(model.decoder)
    cores = [layer.core for layer in layers]
    wrapped = {id(core): JoinedCore(core) for core in cores}
    try:
        for layer, core in zip(layers, cores):
            layer.core = wrapped[id(core)]
        yield
    finally:
        for layer, core in zip(layers, cores):
            layer.core = core

"""One block of a Transformer: attention, cross-attention in decoders, feed-forward, each in a residual connection.

pre-norm    x + f(norm(x))          the residual stream is never normalised: stable, needs a norm at the end
post-norm   norm(x + f(x))          the paper's form ("Add & Norm"): needs warm-up
none        f(norm(x))              no residual connection, to see what one is for

encoder block   x -> attn -> mlp            decoder block   x -> attn -> cross -> mlp
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor, nn

from clearformer.layers.attention import Core, MultiHeadAttention
from clearformer.layers.cache import KeyValues, KVCache
from clearformer.layers.dropout import Dropout
from clearformer.layers.linear import compute_dtype
from clearformer.layers.masks import Mask
from clearformer.layers.norms import add_and_norm
from clearformer.layers.positions import Positions, Rotation
from clearformer.layers.token_norm import TokenBatchNorm


class PreNorm(nn.Module):
    def __init__(self, norm: nn.Module, dropout: float) -> None:
        super().__init__()
        self.norm, self.dropout = norm, Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return x + self.dropout(sublayer(self.norm(x)))


class PostNorm(PreNorm):
    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return add_and_norm(self.norm, x, self.dropout(sublayer(x)))


class NoResidual(PreNorm):
    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return self.dropout(sublayer(self.norm(x)))


RESIDUALS: dict[str, type[PreNorm]] = {"pre": PreNorm, "post": PostNorm, "none": NoResidual}


class Block(nn.Module):
    """A Transformer block, (B, T, D) -> (B, T, D). With a `cross` layer it is a decoder block, which reads `memory`."""

    def __init__(
        self,
        attn: MultiHeadAttention,
        mlp: nn.Module,
        residual: Callable[[], PreNorm],
        cross: MultiHeadAttention | None = None,
    ) -> None:
        super().__init__()
        self.attn, self.add_attn = attn, residual()
        if cross is not None:
            self.cross, self.add_cross = cross, residual()
        self.mlp, self.add_mlp = mlp, residual()
        self.has_cross = cross is not None

    def forward(
        self,
        x: Tensor,
        mask: Any = None,
        bias: Tensor | None = None,
        rotation: Rotation | None = None,
        memory: Tensor | KeyValues | None = None,
        memory_mask: Any = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        x = self.add_attn(x, lambda h: self.attn(h, None, mask, bias, rotation, cache))
        if self.has_cross:
            x = self.add_cross(x, lambda h: self.cross(h, memory, memory_mask))
        return self.add_mlp(x, self.mlp)

    def remember(self, memory: Tensor) -> KeyValues:
        """Return the keys and values of `memory` (B, S, D) for cross-attention, which `forward` takes in its place."""
        return self.cross.remember(memory)


class Stack(nn.Module):
    """A sequence of blocks with a position encoding; pre-norm blocks are followed by a norm.

    `first_norm` normalises the embeddings after positions are added, as in BERT.
    """

    def __init__(
        self,
        blocks: Iterable[Block],
        positions: Positions,
        dropout: float,
        norm: nn.Module | None,
        first_norm: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.positions, self.first_norm = positions, first_norm
        self.dropout = Dropout(dropout)
        self.blocks = nn.ModuleList(blocks)
        self.norm = norm

    def forward(
        self,
        x: Tensor,
        where: Tensor,
        mask: Mask | None = None,
        memory: Tensor | Sequence[KeyValues] | None = None,
        memory_mask: Mask | None = None,
        caches: Sequence[KVCache] | None = None,
        slots: Tensor | None = None,
        real: Tensor | None = None,
    ) -> Tensor:
        """Apply the blocks to embeddings x (B, T, D); returns (B, T, D).

        `where`, (T,) or (B, T), holds the positions of the tokens. With `caches`, x contains only the new tokens, and
        `slots`, (S,) or (B, S), holds the positions of all keys, cached and new.

        `memory` is the input of cross-attention: (B, S, D) for all blocks, or the keys and values of each block.
        `real` (B, T) is True at tokens, False at padding; only batch norms need it, in training.
        """
        keys = where if slots is None else slots
        S = x.size(1) if caches is None else caches[0].length + x.size(1)
        blocks: Any = self.blocks
        masks = lower_for([block.attn.core for block in blocks], mask, S, x)
        memory_masks: list[Any] = [None] * len(blocks)
        if memory is not None:
            n_memory = memory.size(1) if isinstance(memory, Tensor) else memory[0][0].size(2)
            cores = [block.cross.core for block in blocks]
            memory_masks = lower_for(cores, memory_mask, n_memory, x)
        x = self.positions.add(x, where)
        x = self.dropout(x if self.first_norm is None else self.first_norm(x)).to(compute_dtype(x))
        bias, rotation = self.positions.bias(where, keys), self.positions.rotation(where)
        for i, block in enumerate(blocks):
            source = memory[i] if isinstance(memory, Sequence) else memory
            x = block(x, masks[i], bias, rotation, source, memory_masks[i], None if caches is None else caches[i])
        return x if self.norm is None else self.norm(x)


class BatchNormStack(Stack):
    """A stack whose norms are batch norms, which have to know in training where the padding is."""

    def forward(self, *args: Any, real: Tensor | None = None, **options: Any) -> Tensor:
        norms = [module for module in self.modules() if isinstance(module, TokenBatchNorm)]
        try:
            for norm in norms:
                norm.real = real if self.training else None
            return super().forward(*args, **options)
        finally:
            for norm in norms:
                norm.real = None


def lower_for(cores: Sequence[Core], mask: Mask | None, S: int, x: Tensor) -> list[Any]:
    """Return the mask in the form that each core takes, computed only once for cores that lower masks alike.

    x (B, T, D) is the input of the blocks, which compute in its dtype or in the dtype of autocast.
    """
    lowered: list[Any] = []
    for i, core in enumerate(cores):
        first = 0
        while not lower_alike(cores[first], core):
            first += 1
        lowered.append(lowered[first] if first < i else core.lower(mask, x.size(1), S, x.device, compute_dtype(x)))
    return lowered


def lower_alike(one: Core, other: Core) -> bool:
    """Whether two cores lower a mask to the same result: they are identical, or `lowers_like` returns True."""
    return one is other or (hasattr(one, "lowers_like") and bool(one.lowers_like(other)))

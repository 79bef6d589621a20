"""The state of a decoder in buffers of fixed size, so that every step is the same computation on the same tensors.

The growing state (cache.py) has a new shape at every step. Here, every tensor has its final shape from the start, and
the place where a step writes is a tensor too. A step can therefore be recorded as a CUDA graph, or compiled, once.

    rows    B, one per sentence      each row has its own position: a sentence may join or leave the batch at any step
    slots   N, one per cached token  a row fills its slots from the left, W per step; `paths` marks the visible ones

The attributes and methods that a model uses are the same as in `DecodeState`, so no model knows which state it reads.
"""

from typing import Any

import torch
from torch import Tensor

from clearformer.layers.cache import DecodeState, KeyValues
from clearformer.layers.linear import compute_dtype
from clearformer.layers.masks import Ancestors, Mask
from clearformer.layers.open_cache import Trunk
from clearformer.toolchain import can_compile


class Buffers:
    """Tensors with one row per sentence, (B, …), that are only ever overwritten in place."""

    def tensors(self) -> list[Tensor]:
        return [value for value in vars(self).values() if isinstance(value, Tensor)]

    def put(self, at: Tensor, other: "Buffers", rows: Tensor) -> None:
        """Copy the given rows of `other` into the rows `at`. The other dimensions of `other` may be smaller."""
        for mine, theirs in zip(self.tensors(), other.tensors()):
            write(mine, at, theirs[rows])


def write(buffer: Tensor, at: Tensor, values: Tensor) -> None:
    """Write values (n, …) into the rows `at` of a buffer, from the start of every other dimension.

    Flags beyond the values are cleared. Other contents are left, since no flag marks them as visible.
    """
    if buffer.dtype == torch.bool:
        buffer.index_fill_(0, at, False)
    for dim, size in enumerate(values.shape[1:], start=1):
        buffer = buffer.narrow(dim, 0, size)
    buffer.index_copy_(0, at, values)


class StaticCache:
    """The keys and values of one layer, (B, N, G, K), written at `places`, (B·W,): indices into all B·N slots."""

    def __init__(self, k: Tensor, v: Tensor, places: Tensor) -> None:
        self.k, self.v, self.places = k, v, places

    @property
    def length(self) -> int:
        """The number of slots that precede the tokens of a step, if all N are counted."""
        return self.k.size(1) - len(self.places) // len(self.k)

    def append(self, k: Tensor, v: Tensor) -> KeyValues:
        """Write k (B, G, W, K) and v; returns views of all slots, (B, G, N, K). A mask hides those not in use."""
        if k.is_cuda and k.stride(3) == 1 and can_compile():
            from clearformer.layers.triton_kernels import write_slots

            write_slots(self.k, self.v, k, v, self.places)
        else:
            for buffer, new in ((self.k, k), (self.v, v)):
                buffer.flatten(0, 1).index_copy_(0, self.places, new.transpose(1, 2).flatten(0, 1))
        return self.k.transpose(1, 2), self.v.transpose(1, 2)


class StaticState(Buffers):
    """The state of decoding B sentences with W hypotheses each, in N slots, with S positions of encoder memory."""

    def __init__(self, model: Any, n_rows: int, width: int, n_slots: int, n_memory: int = 0) -> None:
        blocks = model.decoder.blocks
        weight: Tensor = blocks[0].attn.qkv.weight
        device = weight.device

        def zeros(*shape: int, dtype: torch.dtype = torch.long) -> Tensor:
            return torch.zeros(n_rows, *shape, dtype=dtype, device=device)

        def buffer(n: int, layer: Any, width: int) -> Tensor:
            return zeros(n, layer.n_kv_heads, width, dtype=compute_dtype(weight))

        self.width, self.n_slots = width, n_slots
        self.used, self.next = zeros(), zeros(1)  # slots in use, (B,), and the position of the next token, (B, 1)
        self.slots, self.paths = zeros(n_slots), zeros(width, n_slots, dtype=torch.bool)
        self.places = zeros(width).flatten()
        self.first_places = torch.arange(n_rows, device=device)[:, None] * n_slots  # index of slot 0 of each row
        self.columns = torch.arange(width, device=device)
        self.alone = torch.eye(width, dtype=torch.bool, device=device)
        attentions = [block.attn for block in blocks]
        self.caches = [
            StaticCache(buffer(n_slots, layer, layer.d_head), buffer(n_slots, layer, layer.d_value), self.places)
            for layer in attentions
        ]
        self.memory: list[KeyValues] | None = None
        self.memory_keys: Tensor | None = None
        if n_memory:
            layers = [block.cross for block in blocks]
            kept = [(buffer(n_memory, layer, layer.d_head), buffer(n_memory, layer, layer.d_value)) for layer in layers]
            self.memory = [(k.transpose(1, 2), v.transpose(1, 2)) for k, v in kept]
            self.memory_keys = zeros(n_memory, dtype=torch.bool)
            self.memory_keys[:, 0] = True  # an unused row attends to something, too: a row of NaN would spread

    def tensors(self) -> list[Tensor]:
        """Return the tensors that belong to sentences, (B, …)."""
        tensors = [self.used, self.next, self.slots, self.paths]
        tensors += [tensor for cache in self.caches for tensor in (cache.k, cache.v)]
        if self.memory is not None and self.memory_keys is not None:
            tensors += [self.memory_keys, *(tensor.transpose(1, 2) for pair in self.memory for tensor in pair)]
        return tensors

    def clear(self) -> None:
        """Empty the caches: a number that is not finite would reach later sentences, as 0 · NaN is NaN."""
        for cache in self.caches:
            cache.k.zero_()
            cache.v.zero_()

    def empty(self, at: Tensor) -> None:
        """Zero the rows `at`: a number that is not finite would reach the next sentence, as 0 · NaN is NaN."""
        for tensor in self.tensors():
            if tensor.is_floating_point():
                tensor.index_fill_(0, at, 0.0)

    def admit(self, at: Tensor, state: DecodeState, rows: Tensor | None = None, most: int | None = None) -> None:
        """Let the sentences of a state that has just started, or those in some of its rows, occupy the rows `at`.

        If their sources have at most `most` tokens, the padding after them is left out.
        """
        trunk = Trunk(state, most)

        def enter(buffer: Tensor, values: Tensor) -> None:
            write(buffer, at, values if rows is None else values.index_select(0, rows))

        self.used.index_fill_(0, at, trunk.n_read)
        positions, paths, *pairs = trunk.slots(self.width)
        for buffer, values in zip((self.next, self.slots, self.paths), (trunk.next, positions, paths)):
            if values is not None:
                enter(buffer, values)
        for buffer, values in zip((x for cache in self.caches for x in (cache.k, cache.v)), pairs):
            if values is not None:
                enter(buffer, values.transpose(1, 2))
        if self.memory is not None and self.memory_keys is not None:
            keys, *kept = trunk.memory()
            assert keys is not None
            enter(self.memory_keys, keys)
            for buffer, values in zip((x for pair in self.memory for x in pair), kept):
                assert values is not None
                enter(buffer.transpose(1, 2), values.transpose(1, 2))

    def grow(self, n_rows: int, width: int) -> tuple[Tensor, Mask]:
        """Occupy a slot for the next token of each hypothesis; returns the tokens' positions (B, W) and mask."""
        where = self.next.expand(-1, width)
        if self.used.is_cuda and can_compile():
            from clearformer.layers import triton_kernels

            triton_kernels.occupy(self.used, self.next, self.places, self.slots, self.paths)
            return where, Ancestors(self.paths)
        columns = self.used[:, None] + self.columns  # (B, W)
        self.places.copy_((self.first_places + columns).flatten())
        self.slots.scatter_(1, columns, where)
        self.paths.scatter_(2, columns[:, None].expand(-1, width, -1), self.alone.expand(n_rows, -1, -1))
        return where, Ancestors(self.paths)

    def reorder(self, parents: Tensor) -> None:
        """Let hypothesis w of sentence b continue hypothesis parents[b, w]; parents (B, W)."""
        self.paths.copy_(self.paths.gather(1, parents[:, :, None].expand(-1, -1, self.n_slots)))

    def advance(self, done: Tensor) -> None:
        """End a step: the rows that are not done, (B,), move on. The others will write to the same slots again."""
        if done.is_cuda and can_compile():
            from clearformer.layers import triton_kernels

            triton_kernels.advance(self.used, self.next, done, self.width)
        else:
            self.next += ~done[:, None]
            self.used += ~done * self.width

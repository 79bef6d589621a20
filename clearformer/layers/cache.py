"""The state of a decoder between steps.

Each step attends to all previous tokens; recomputing their keys and values would make decoding cubic in the length. The
state is an argument of the model, never a part of it, so that several decoders can use one model.

A beam search is a tree: its W hypotheses have most of their past in common. Instead of copying the keys and values of
each hypothesis whenever the search reorders them, all W tokens of a step are written once, and every hypothesis records
which slots are on its own path. Reordering is then a gather of a few booleans, and the W hypotheses of a sentence are
ordinary queries of one attention call with one set of encoder keys.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from clearformer.layers.masks import Ancestors, Mask

KeyValues = tuple[Tensor, Tensor]  # (B, G, S, K), (B, G, S, N)


class KVCache:
    """The keys and values of one layer, in buffers that grow by half when they are full.

    `append` adds the keys and values of new tokens and returns views of all keys and values.
    """

    def __init__(self, capacity: int = 64) -> None:
        self.length, self.capacity = 0, capacity
        self.k = self.v = torch.empty(0)

    def append(self, k: Tensor, v: Tensor) -> KeyValues:
        """Add k (B, G, T, K) and v (B, G, T, N); returns views of all keys and values, (B, G, length, K or N)."""
        start, end = self.length, self.length + k.size(2)
        if start == 0 or end > self.capacity:
            while end > self.capacity:
                self.capacity += max(1, self.capacity // 2)
            self.k, self.v = self.resized(self.k, k), self.resized(self.v, v)
        self.k[:, :, start:end] = k
        self.v[:, :, start:end] = v
        self.length = end
        return self.k[:, :, :end], self.v[:, :, :end]

    def resized(self, old: Tensor, like: Tensor) -> Tensor:
        new = like.new_empty(*like.shape[:2], self.capacity, like.size(3))
        if self.length:
            new[:, :, : self.length] = old[:, :, : self.length]
        return new

    def keep(self, rows: Tensor) -> None:
        if self.length:
            self.k, self.v = self.k[rows], self.v[rows]


class DecodeState:
    """The state of decoding B sentences with W hypotheses each: caches, encoder memory and the shape of the tree.

    Positions have shape (1, …) while all sentences are equally long, and (B, …) after prompts of different lengths.
    """

    def __init__(
        self,
        n_layers: int,
        device: torch.device,
        memory: Sequence[KeyValues] | None = None,
        memory_keys: Tensor | None = None,
    ) -> None:
        self.caches = [KVCache() for _ in range(n_layers)]
        self.memory = None if memory is None else [(k.contiguous(), v.contiguous()) for k, v in memory]
        self.memory_keys = memory_keys
        self.next = torch.zeros(1, 1, dtype=torch.long, device=device)  # (1 or B, 1): position of the next token
        self.slots = self.next[:, :0]  # (1 or B, slots): position of each cached token
        self.paths: Tensor | None = None  # (B, W, slots) bool; None while each sentence has a single path

    def read(self, n: int, keys: Tensor | None) -> None:
        """Read n tokens of each sentence at once: the trunk of the tree. keys (B, n) is True except at padding."""
        self.slots = torch.arange(n, device=self.next.device)[None]
        self.next = self.next + n
        if keys is not None:
            self.slots, self.next = self.slots.expand(len(keys), -1), keys.sum(1, keepdim=True)
            self.paths = keys[:, None]

    def grow(self, n_rows: int, width: int) -> tuple[Tensor, Mask | None]:
        """Add a slot for the next token of each of W hypotheses; returns the tokens' positions (1 or B, W) and mask."""
        where = self.next.expand(-1, width)
        self.slots, self.next = torch.cat([self.slots, where], dim=1), self.next + 1
        if width == 1 and self.paths is None:
            return where, None
        present = torch.eye(width, dtype=torch.bool, device=where.device).expand(n_rows, -1, -1)
        # Until the first step with several hypotheses, every slot is an ancestor of all hypotheses.
        past = present.new_ones(n_rows, 1, self.slots.size(1) - width) if self.paths is None else self.paths
        self.paths = torch.cat([past.expand(-1, width, -1), present], dim=2)
        return where, Ancestors(self.paths)

    def reorder(self, parents: Tensor) -> None:
        """Let hypothesis w of sentence b continue hypothesis parents[b, w]; parents (B, W)."""
        if self.paths is not None:
            self.paths = self.paths.gather(1, parents[:, :, None].expand(-1, -1, self.paths.size(2)))

    def keep(self, rows: Tensor) -> None:
        """Keep only the sentences with indices rows (B',); finished sentences leave the batch."""
        for cache in self.caches:
            cache.keep(rows)
        if self.memory is not None:
            self.memory = [(k[rows], v[rows]) for k, v in self.memory]
        self.memory_keys = None if self.memory_keys is None else self.memory_keys[rows]
        self.paths = None if self.paths is None else self.paths[rows]
        if self.next.size(0) > 1:
            self.next, self.slots = self.next[rows], self.slots[rows]


class RecurrentState:
    """The state of a recurrent network decoding B sentences with W hypotheses each: its current vectors.

    `vectors` has shape (…, B, W, D), with W = 1 until the first step with several hypotheses. `memory`, tensors (B, …)
    or None, belongs to a sentence: all of its hypotheses read the same memory.
    """

    def __init__(self, vectors: Tensor, *memory: Tensor | None) -> None:
        self.vectors, self.memory = vectors, memory

    def expanded(self, width: int) -> Tensor:
        """Return the vectors (…, B, W, D) of W hypotheses."""
        return self.vectors.expand(*self.vectors.shape[:-2], width, -1)

    def reorder(self, parents: Tensor) -> None:
        """Let hypothesis w of sentence b continue hypothesis parents[b, w]; parents (B, W)."""
        shape = (1,) * (self.vectors.dim() - 3) + parents.shape + (1,)
        self.vectors = torch.take_along_dim(self.vectors, parents.view(shape), dim=-2)

    def keep(self, rows: Tensor) -> None:
        """Keep only the sentences with indices rows (B',)."""
        self.vectors = self.vectors.index_select(-3, rows)
        self.memory = tuple(None if part is None else part[rows] for part in self.memory)

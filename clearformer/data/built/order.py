"""The order of an epoch over shards: a function of (seed, epoch), found for any position without planning the rest.

    shards in random order ──windows of WINDOW shards──▶ batches of their pairs ──shuffled within the window──▶ steps

Within a shard, pairs are sorted along the snake of collate.py, in random order where their lengths are equal. The snake
itself is the same in all epochs, and so is the number of batches of a shard: the place of a step is found by one binary
search, and only the shards of its window are sorted.
"""

import json
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, overload

import numpy as np

from clearformer.data.built.pair_shards import write_facts
from clearformer.data.collate import cut, snake

WINDOW = 4  # shards whose batches are mixed


class ShardedBatches:
    """Batches of similarly long pairs of one shard within a budget of tokens, as `TokenBatches`.

    lengths (n, 2): as in `PairStore.lengths`. edges (shards + 1,): where the shards begin.
    """

    def __init__(
        self,
        lengths: np.ndarray,
        edges: np.ndarray,
        tokens: int,
        seed: int = 0,
        prefetch: Callable[[Sequence[int]], None] = lambda shards: None,
        cache: Path | None = None,
    ) -> None:
        self.lengths, self.edges, self.tokens, self.seed, self.prefetch = lengths, edges, tokens, seed, prefetch
        self.cache = cache  # a file that keeps the counts for a resumed run
        self.window = lru_cache(maxsize=4)(self._window)

    @cached_property
    def counts(self) -> np.ndarray:
        """The number of batches of each shard, in every epoch."""
        key = {"tokens": self.tokens, "edges": self.edges.tolist()}
        try:
            kept = json.loads(self.cache.read_text(encoding="utf-8")) if self.cache is not None else {}
            if all(kept.get(name) == value for name, value in key.items()):
                return np.array(kept["counts"])
        except (OSError, ValueError, KeyError, AttributeError):  # none yet, or damaged
            pass
        counts = np.array([len(self.cuts(n)[1]) + 1 for n in range(len(self.edges) - 1)])
        if self.cache is not None:
            write_facts(self.cache, {**key, "counts": counts.tolist()})
        return counts

    def cuts(self, n: int) -> tuple[np.ndarray, list[int]]:
        """The sort keys of the pairs of a shard, and where its batches begin in their order."""
        lengths = self.lengths[self.edges[n] : self.edges[n + 1]] + 1  # with EOS or BOS
        keys = snake(lengths, np.random.default_rng((0, n)))
        return keys, cut(lengths.max(1)[np.argsort(keys, kind="stable")], self.tokens)

    def shard(self, n: int, epoch: int) -> list[np.ndarray]:
        """The batches of a shard, along its snake."""
        keys, cuts = self.cuts(n)
        order = np.random.default_rng((self.seed, epoch, n)).permutation(len(keys))
        return np.split(order[np.argsort(keys[order], kind="stable")] + self.edges[n], cuts)

    def order(self, epoch: int) -> np.ndarray:
        """The shards in the order of an epoch."""
        return np.random.default_rng((self.seed, epoch)).permutation(len(self.edges) - 1)

    def _window(self, epoch: int, number: int) -> list[np.ndarray]:
        order = self.order(epoch)
        shards = order[number * WINDOW : (number + 1) * WINDOW].tolist()
        self.prefetch(order[(number + 1) * WINDOW : (number + 2) * WINDOW].tolist())
        batches = [batch for n in shards for batch in self.shard(n, epoch)]
        rng = np.random.default_rng((self.seed, epoch, number, WINDOW))
        return [batches[i] for i in rng.permutation(len(batches))]

    def padding(self, epoch: int = 0) -> float:
        """The fraction of positions that are padding, over both sides, in the first window of an epoch."""
        lengths = [self.lengths[rows] + 1 for rows in self.window(epoch, 0)]
        n_positions = sum(len(rows) * int(rows.max(0).sum()) for rows in lengths)
        return 1 - sum(int(rows.sum()) for rows in lengths) / n_positions

    def epoch(self, epoch: int) -> "Lazy":
        """The batches of one epoch in order, each an array of pair numbers, planned when they are asked for."""
        counts = self.counts[self.order(epoch)]
        starts = np.concatenate([[0], np.cumsum(np.add.reduceat(counts, np.arange(0, len(counts), WINDOW)))])

        def batch(i: int) -> np.ndarray:
            number = int(np.searchsorted(starts, i, side="right")) - 1
            return self.window(epoch, number)[i - int(starts[number])]

        return Lazy(int(starts[-1]), batch)

    def steps(self, epoch: int, group: int) -> "Lazy":
        """The batches in groups of `group` (ranks * accumulation); the last is filled with the first batches."""
        batches = self.epoch(epoch)
        n = len(batches)
        return Lazy(-(-n // group), lambda i: [batches[j % n] for j in range(i * group, (i + 1) * group)])


class Lazy(Sequence[Any]):
    """A sequence whose items are computed when they are asked for."""

    def __init__(self, n: int, item: Callable[[int], Any]) -> None:
        self.n, self.item = n, item

    def __len__(self) -> int:
        return self.n

    @overload
    def __getitem__(self, i: int) -> Any: ...
    @overload
    def __getitem__(self, i: slice) -> list[Any]: ...
    def __getitem__(self, i: int | slice) -> Any:
        if isinstance(i, slice):
            return [self.item(j) for j in range(*i.indices(self.n))]
        if not -self.n <= i < self.n:
            raise IndexError(i)
        return self.item(i % self.n)

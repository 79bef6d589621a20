"""The order of an epoch over shards: a function of (seed, epoch), found for any position without planning the rest.

    pairs    shards in random order ──WINDOW shards at a time──▶ batches of their pairs, shuffled ──▶ steps
    text     shards in random order ──WINDOW shards at a time──▶ rows that begin in them, shuffled ──▶ batches

Within a shard, pairs are sorted along the snake of collate.py, in random order where their lengths are equal. The snake
itself is the same in all epochs, and so is the number of batches of a shard: the place of a step is found by one binary
search, and only the shards of its window are sorted. The number of rows of text that begin in a shard follows from its
edges.
"""

import json
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from clearformer.data.built.pair_shards import write_facts
from clearformer.data.collate import cut, snake
from clearformer.data.lazy import Lazy, in_lazy_groups

WINDOW = 4  # shards whose batches, or rows of text, are mixed


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

    def epoch(self, epoch: int) -> Lazy:
        """The batches of one epoch in order, each an array of pair numbers, planned when they are asked for."""
        counts = self.counts[self.order(epoch)]
        starts = np.concatenate([[0], np.cumsum(np.add.reduceat(counts, np.arange(0, len(counts), WINDOW)))])

        def batch(i: int) -> np.ndarray:
            number = int(np.searchsorted(starts, i, side="right")) - 1
            return self.window(epoch, number)[i - int(starts[number])]

        return Lazy(int(starts[-1]), batch)

    def steps(self, epoch: int, group: int) -> Lazy:
        """The batches in groups of `group` (ranks * accumulation); the last is filled with the first batches."""
        return in_lazy_groups(self.epoch(epoch), group)


class ShardedRows:
    """The order of the rows of a text for `Windows`: those that begin in WINDOW shards at a time are shuffled.

    edges (shards + 1,): where the shards begin in the stream of tokens. A row may end in the next shard.
    """

    def __init__(self, edges: np.ndarray, prefetch: Callable[[Sequence[int]], None] = lambda shards: None) -> None:
        self.edges, self.prefetch = edges, prefetch

    def __call__(self, places: range, rng: np.random.Generator) -> "MixedRows":
        """Shuffle the places where rows begin; `rng` determines the order."""
        # The row before which each shard begins: a row belongs to the shard of its first label.
        rows = np.clip(-((places.start - self.edges) // places.step), 0, len(places))  # (shards + 1,)
        shards = rng.permutation(len(self.edges) - 1)
        return MixedRows(places, rows, shards, int(rng.integers(2**62)), self.prefetch)


class MixedRows:
    """The places of the rows of an epoch in their order; a slice only shuffles the windows of shards that it needs.

    rows (shards + 1,): the number of the first row of each shard, in the order of the text. shards: their random order.
    """

    def __init__(
        self, places: range, rows: np.ndarray, shards: np.ndarray, seed: int, prefetch: Callable[[Sequence[int]], None]
    ) -> None:
        self.places, self.rows, self.shards, self.seed, self.prefetch = places, rows, shards, seed, prefetch
        sizes = np.diff(rows)[shards]
        self.starts = np.append(0, np.cumsum(np.add.reduceat(sizes, np.arange(0, len(shards), WINDOW))))
        self.window = lru_cache(maxsize=2)(self._window)

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, at: slice) -> np.ndarray:
        start, stop, _ = at.indices(len(self))
        first, last = np.searchsorted(self.starts, [start, stop - 1], side="right") - 1
        parts = [self.window(number) for number in range(first, last + 1)]
        return np.concatenate(parts)[start - self.starts[first] : stop - self.starts[first]]

    def _window(self, number: int) -> np.ndarray:
        shards = self.shards[number * WINDOW : (number + 1) * WINDOW]
        following = self.shards[(number + 1) * WINDOW : (number + 2) * WINDOW]
        last = len(self.shards) - 1
        # The shards after those of this window: its last rows may end there.
        self.prefetch([*np.minimum(shards + 1, last).tolist(), *following.tolist()])
        rows = np.concatenate([np.arange(*self.rows[n : n + 2]) for n in shards.tolist()])
        rng = np.random.default_rng((self.seed, number))
        return self.places.start + self.places.step * rng.permutation(rows)

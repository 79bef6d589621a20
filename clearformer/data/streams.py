"""Running text for a model that carries its state along: rows that go on from batch to batch.

    text      a b c d e f g h i j k l                 three streams of four tokens, read two at a time
    batch 1   a b | e f | i j                         rows begin
    batch 2   c d | g h | k l                         each goes on where it was

Gradients end with a batch, the state does not (truncated back-propagation through time, Williams & Peng 1990). What is
read before each label, windows.py tells.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from clearformer.data.batch import TextBatch
from clearformer.data.store import DocumentStore
from clearformer.data.windows import rows_at
from clearformer.errors import DataError


class Stretch(NamedTuple):
    """`length` labels from each of `places` (B,), which go on from those before them unless they are the first."""

    places: np.ndarray
    length: int
    block: int
    is_first: bool


class Streams:
    """Batches of `n_rows` streams, `length` tokens of each; their order is a pure function of (seed, epoch).

    A step of several micro-batches has as many blocks of streams: each goes on by itself, on whatever rank. Every
    epoch begins to cut at another place, drawn below `length`; what is left at the ends, less than a batch for each
    stream, goes unseen until another epoch. Documents that are not `joined` begin anew, also inside a row.
    """

    is_drawn = False

    def __init__(self, store: DocumentStore, length: int, n_rows: int, seed: int = 0, joined: bool = False) -> None:
        self.store, self.length, self.n_rows, self.seed, self.joined = store, length, n_rows, seed, joined
        self.n_tokens = len(store.tokens)

    def steps(self, epoch: int, group: int) -> list[list[Stretch]]:
        """The batches of one epoch in groups of `group` (ranks * accumulation), one optimiser step each."""
        n = self.n_rows * group
        spare = self.n_tokens - n * self.length
        if spare < 0:
            raise DataError(
                f"{self.store.path}: {self.n_tokens:,} tokens do not fill {n:,} rows of {self.length:,}",
                "give more text, or set fewer train.tokens or a smaller data.length",
            )
        first = int(np.random.default_rng((self.seed, epoch)).integers(min(self.length, spare + 1)))
        each = (self.n_tokens - first) // n  # tokens of a stream
        begins = (first + each * np.arange(n)).reshape(group, self.n_rows)
        return [
            [Stretch(places + at, self.length, block, at == 0) for block, places in enumerate(begins)]
            for at in range(0, each - self.length + 1, self.length)
        ]

    def whole(self) -> list[Stretch]:
        """A single stream that holds every token exactly once: each is predicted from all that came before it."""
        length = self.n_rows * self.length
        return [Stretch(np.array([at]), length, 0, at == 0) for at in range(0, self.n_tokens, length)]

    def count(self, stretch: Stretch) -> int:
        """The labels in a batch, without reading it."""
        return int(np.minimum(stretch.length, self.n_tokens - stretch.places).sum())

    def batch(self, stretch: Stretch, key: tuple[int, int] = (0, 0)) -> TextBatch:
        batch = rows_at(self.store, stretch.places, stretch.length, self.joined)
        return replace(batch, goes_on=torch.from_numpy(self.goes_on(stretch)), block=stretch.block)

    def read(self) -> Iterator[TextBatch]:
        """What `whole` plans, read."""
        return map(self.batch, self.whole())

    def goes_on(self, stretch: Stretch) -> np.ndarray:
        """(B,) Whether each row's first token belongs to a document that was begun in the batch before."""
        places, offsets = stretch.places, self.store.offsets
        is_inside = self.joined | (offsets[np.searchsorted(offsets, places, side="right") - 1] < places)
        return np.full(len(places), not stretch.is_first) & is_inside

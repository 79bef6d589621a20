"""Batches of running text for a recurrent model: each row continues the same row of the previous batch.

    text      a b c d e f g h i j k l                 three streams of four tokens, read two at a time
    batch 1   a b | e f | i j                         rows start
    batch 2   c d | g h | k l                         rows continue

Gradients stop at the start of a batch, but the hidden state is carried over (truncated back-propagation through time,
Williams & Peng 1990). windows.py describes the inputs and labels.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from clearformer.data.batch import TextBatch
from clearformer.data.lazy import Lazy
from clearformer.data.store import Documents
from clearformer.data.windows import rows_at
from clearformer.errors import DataError
from clearformer.wording import agree, count


class Stretch(NamedTuple):
    """The plan for a batch: `length` labels from each of `places` (B,). Rows continue the block's previous batch."""

    places: np.ndarray
    length: int
    block: int
    is_first: bool


class Streams:
    """Batches of `length` tokens from each of `n_rows` streams; their order is a pure function of (seed, epoch).

    A step of several micro-batches has one block of streams per micro-batch; each block continues independently, on any
    rank. Every epoch starts at a random position below `length`; the few tokens left over at both ends are not seen in
    this epoch. Unless documents are `joined`, the state is reset at the start of each document, even inside a row.
    """

    is_drawn = False

    def __init__(self, store: Documents, length: int, n_rows: int, seed: int = 0, joined: bool = False) -> None:
        self.store, self.length, self.n_rows, self.seed, self.joined = store, length, n_rows, seed, joined
        self.n_tokens = len(store.tokens)

    def steps(self, epoch: int, group: int) -> Lazy:
        """Return the batches of an epoch in groups of `group` (ranks * accumulation); a group is one optimiser step."""
        n = self.n_rows * group
        spare = self.n_tokens - n * self.length
        if spare < 0:
            raise DataError(
                f"{self.store.path}: {count(self.n_tokens, 'token')} {agree(self.n_tokens, 'does', 'do')} not fill "
                f"{count(n, 'row')} of {count(self.length, 'token')}",
                "add text, or set a smaller train.tokens or data.length",
            )
        first = int(np.random.default_rng((self.seed, epoch)).integers(min(self.length, spare + 1)))
        each = (self.n_tokens - first) // n  # tokens of a stream
        begins = (first + each * np.arange(n)).reshape(group, self.n_rows)

        def step(i: int) -> list[Stretch]:
            at = i * self.length
            return [Stretch(places + at, self.length, block, i == 0) for block, places in enumerate(begins)]

        return Lazy(each // self.length, step)

    def whole(self) -> Lazy:
        """Return the batches of a single stream, in which each token is predicted once, from all tokens before it."""
        length = self.n_rows * self.length
        return Lazy(-(-self.n_tokens // length), lambda i: Stretch(np.array([i * length]), length, 0, i == 0))

    def count(self, stretch: Stretch) -> int:
        """Return the number of labels in a batch, without reading it."""
        return int(np.minimum(stretch.length, self.n_tokens - stretch.places).sum())

    def batch(self, stretch: Stretch, key: tuple[int, int] = (0, 0)) -> TextBatch:
        batch = rows_at(self.store, stretch.places, stretch.length, self.joined)
        return replace(batch, continues=torch.from_numpy(self.continues(stretch)), block=stretch.block)

    def read(self) -> Iterator[TextBatch]:
        """Yield the batches that `whole` plans."""
        return map(self.batch, self.whole())

    def continues(self, stretch: Stretch) -> np.ndarray:
        """Return whether each row starts inside a document that began in an earlier batch, (B,) bool."""
        is_inside = self.joined | (self.store.document_at(stretch.places)[1] < stretch.places)
        return np.full(len(stretch.places), not stretch.is_first) & is_inside

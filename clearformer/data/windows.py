"""Documents to batches of running text: which places of the stream travel together, and what is read there.

    stream      a1 a2 a3 EOS b1 b2 EOS c1 ...         every token is a label
    tokens    ^ a1 a2 a3 ^   b1 b2 ^   c1             what is read just before it, ^ where a document begins

A row is a window of T labels. ^ is BOS, or, as in GPT-2's stream, the EOS of the document before, which the document
after it reads as its beginning. So the first token of a document is predicted too, from ^ alone; nothing is predicted
from another document; and each token of the corpus is a label exactly once.
"""

from collections.abc import Iterator

import numpy as np
import torch

from clearformer.data.batch import IGNORE, TextBatch
from clearformer.data.collate import in_groups
from clearformer.data.store import DocumentStore
from clearformer.errors import DataError


class Windows:
    """Batches of `n_rows` windows of `length` tokens; their order is a pure function of (seed, epoch).

    A batch is an array of places, those of the first label of each row; `batch` reads what is there. Each epoch begins
    to cut at another place, drawn below `length`, and shuffles the rows; what is left at both ends, less than a row
    each, goes unseen until another epoch. `whole` leaves nothing out, for evaluation.

    Where documents are `joined`, each may look back at those before it in the window: they are parts of one text, and
    the EOS between them is a word of it. Then nothing is hidden, and positions count through.
    """

    is_drawn = False

    def __init__(self, store: DocumentStore, length: int, n_rows: int, seed: int = 0, joined: bool = False) -> None:
        self.store, self.length, self.n_rows, self.seed, self.joined = store, length, n_rows, seed, joined
        self.n_tokens = len(store.tokens)

    def epoch(self, epoch: int) -> list[np.ndarray]:
        """The batches of one epoch in order."""
        spare = self.n_tokens - self.length
        if spare < 0:
            raise DataError(
                f"{self.store.path}: {self.n_tokens:,} tokens do not fill one window of {self.length:,}",
                "give more text, or ask for shorter windows",
            )
        rng = np.random.default_rng((self.seed, epoch))
        first = rng.integers(min(self.length, spare + 1))
        return self._cut(rng.permutation(np.arange(first, spare + 1, self.length)))

    def steps(self, epoch: int, group: int) -> list[list[np.ndarray]]:
        """The batches of one epoch in groups of `group` (ranks * accumulation), one optimiser step each.

        A last group that falls short is filled from the start of the epoch; those few rows are seen twice.
        """
        return in_groups(self.epoch(epoch), group)

    def whole(self) -> list[np.ndarray]:
        """Batches that hold every token exactly once, in order; the last row may end before its window does."""
        return self._cut(np.arange(0, self.n_tokens, self.length))

    def count(self, places: np.ndarray) -> int:
        """The labels in a batch, without reading it."""
        return int(np.minimum(self.length, self.n_tokens - places).sum())

    def batch(self, places: np.ndarray, key: tuple[int, int] = (0, 0)) -> TextBatch:
        """The rows that begin at `places` (B,)."""
        return rows_at(self.store, places, self.length, self.joined)

    def read(self) -> Iterator[TextBatch]:
        """What `whole` plans, read."""
        return map(self.batch, self.whole())

    def _cut(self, places: np.ndarray) -> list[np.ndarray]:
        return np.split(places, range(self.n_rows, len(places), self.n_rows))


def rows_at(store: DocumentStore, places: np.ndarray, length: int, joined: bool) -> TextBatch:
    """`length` labels from each of `places` (B,). Past the stream's end rows read ^, in a document with no labels."""
    tokens, offsets, n_tokens = store.tokens, store.offsets, len(store.tokens)
    at = places[:, None] + np.arange(length)  # (B, T)
    exists = at < n_tokens
    document = np.searchsorted(offsets, at, side="right") - 1
    begins = offsets[document]
    near = np.minimum(at, n_tokens - 1)
    is_first = at == 0 if joined else at == begins
    read = np.where(~is_first & exists, tokens[near - 1], store.start_id)
    labels = np.where(exists, tokens[near].astype("int64"), IGNORE)
    if joined or (document[:, 0] == document[:, -1]).all():
        return TextBatch(tensor(read), tensor(labels))
    positions = at - np.maximum(begins, places[:, None])  # a document that the window cuts begins again with it
    return TextBatch(tensor(read), tensor(labels), tensor(document), tensor(positions))


def tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array.astype("int64"))

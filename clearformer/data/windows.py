"""Cut a stream of documents into batches of running text, with inputs and labels.

    stream      a1 a2 a3 EOS b1 b2 EOS c1 ...         every token is a label
    tokens    ^ a1 a2 a3 ^   b1 b2 ^   c1             the input for each label, ^ at the start of a document

A row is a window of T labels. ^ is BOS or, as in GPT-2's stream, the EOS of the previous document, which serves as the
start of the next. So the first token of a document is also predicted, only from ^; nothing is predicted from another
document; and each token of the corpus is a label exactly once.
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch

from clearformer.data.batch import IGNORE, TextBatch
from clearformer.data.lazy import Lazy, in_lazy_groups
from clearformer.data.store import Documents
from clearformer.errors import DataError
from clearformer.wording import agree, count


class Places(Protocol):
    """Where the rows of an epoch begin, in their order: an array, or an object that computes its slices."""

    def __len__(self) -> int: ...
    def __getitem__(self, at: slice, /) -> np.ndarray: ...


class Order(Protocol):
    """Puts the places where rows may begin in a random order, which `rng` determines."""

    def __call__(self, places: range, rng: np.random.Generator) -> Places: ...


def shuffled(places: range, rng: np.random.Generator) -> np.ndarray:
    """Shuffle all rows of a text: eight bytes of memory for each."""
    return rng.permutation(np.arange(places.start, places.stop, places.step))


class Windows:
    """Batches of `n_rows` windows of `length` tokens; their order is a pure function of (seed, epoch).

    A batch is planned as an array of places, the position of each row's first label in the stream; `batch` reads the
    rows. Each epoch starts at a random position below `length`, and `order` shuffles the rows: those of a built folder
    by shards, so that no epoch is planned as a whole. The tokens left over at both ends, fewer than a row each, are not
    seen in this epoch. `whole` covers all tokens, for evaluation.

    If documents are `joined`, they are parts of one text: each may attend to earlier ones in the window, the EOS
    between them is an ordinary token, and positions do not restart.

    If batches are `filled`, the last one of an epoch has as many rows as the others: empty rows without labels, which
    begin past the end of the stream. All steps then have one shape.
    """

    is_drawn = False

    def __init__(
        self,
        store: Documents,
        length: int,
        n_rows: int,
        seed: int = 0,
        joined: bool = False,
        filled: bool = False,
        order: Order = shuffled,
    ) -> None:
        self.store, self.length, self.n_rows, self.seed = store, length, n_rows, seed
        self.joined, self.filled, self.order = joined, filled, order
        self.n_tokens = len(store.tokens)

    def epoch(self, epoch: int) -> Lazy:
        """Return the batches of one epoch in order, each an array of places."""
        spare = self.n_tokens - self.length
        if spare < 0:
            raise DataError(
                f"{self.store.path}: {count(self.n_tokens, 'token')} {agree(self.n_tokens, 'does', 'do')} not fill "
                f"one window of {count(self.length, 'token')}",
                "add text, or set a smaller data.length",
            )
        rng = np.random.default_rng((self.seed, epoch))
        first = int(rng.integers(min(self.length, spare + 1)))
        places = self.order(range(first, spare + 1, self.length), rng)
        n_least = self.n_rows if self.filled and len(places) > self.n_rows else 0

        def batch(i: int) -> np.ndarray:
            rows = places[i * self.n_rows : (i + 1) * self.n_rows]
            return np.append(rows, np.full(max(0, n_least - len(rows)), self.n_tokens))

        return Lazy(-(-len(places) // self.n_rows), batch)

    def steps(self, epoch: int, group: int) -> Lazy:
        """Return the batches of one epoch in groups of `group` (ranks * accumulation); a group is one optimiser step.

        An incomplete last group is filled with the first batches of the epoch, whose rows then occur twice.
        """
        return in_lazy_groups(self.epoch(epoch), group)

    def whole(self) -> Lazy:
        """Return batches with every token once, in order; the last window may extend past the end of the stream."""
        places = range(0, self.n_tokens, self.length)
        return Lazy(-(-len(places) // self.n_rows), lambda i: np.array(places[i * self.n_rows : (i + 1) * self.n_rows]))

    def count(self, places: np.ndarray) -> int:
        """Return the number of labels in a batch, without reading it."""
        return int(np.minimum(self.length, self.n_tokens - places).sum())

    def batch(self, places: np.ndarray, key: tuple[int, int] = (0, 0)) -> TextBatch:
        """Read the batch whose rows begin at `places` (B,)."""
        return rows_at(self.store, places, self.length, self.joined)

    def read(self) -> Iterator[TextBatch]:
        """Yield the batches that `whole()` plans: the text once, in order."""
        return map(self.batch, self.whole())


def rows_at(store: Documents, places: np.ndarray, length: int, joined: bool) -> TextBatch:
    """Read `length` labels from each of `places` (B,). Past the end of the stream the input is ^, without labels."""
    tokens, n_tokens = store.tokens, len(store.tokens)
    at = places[:, None] + np.arange(length)  # (B, T)
    exists = at < n_tokens
    document, begins = store.document_at(at)
    near = np.minimum(at, n_tokens - 1)
    is_first = at == 0 if joined else at == begins
    inputs = np.where(~is_first & exists, tokens[near - 1], store.start_id)
    labels = np.where(exists, tokens[near].astype("int64"), IGNORE)
    if joined or (document[:, 0] == document[:, -1]).all():
        return TextBatch(tensor(inputs), tensor(labels))
    # Positions of a document that starts before the window count from the start of the window.
    positions = at - np.maximum(begins, places[:, None])
    return TextBatch(tensor(inputs), tensor(labels), tensor(document), tensor(positions))


def tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array.astype("int64"))

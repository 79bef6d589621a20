"""Cut a stream of documents into batches of running text, with inputs and labels.

    stream      a1 a2 a3 EOS b1 b2 EOS c1 ...         every token is a label
    tokens    ^ a1 a2 a3 ^   b1 b2 ^   c1             the input for each label, ^ at the start of a document

A row is a window of T labels. ^ is BOS or, as in GPT-2's stream, the EOS of the previous document, which serves as the
start of the next. So the first token of a document is also predicted, only from ^; nothing is predicted from another
document; and each token of the corpus is a label exactly once.
"""

from collections.abc import Iterator

import numpy as np
import torch

from clearformer.data.batch import IGNORE, TextBatch
from clearformer.data.collate import in_groups
from clearformer.data.store import DocumentStore
from clearformer.errors import DataError
from clearformer.wording import agree, count


class Windows:
    """Batches of `n_rows` windows of `length` tokens; their order is a pure function of (seed, epoch).

    A batch is planned as an array of places, the position of each row's first label in the stream; `batch` reads the
    rows. Each epoch starts at a random position below `length` and shuffles the rows; the tokens left over at both
    ends, fewer than a row each, are not seen in this epoch. `whole` covers all tokens, for evaluation.

    If documents are `joined`, they are parts of one text: each may attend to earlier ones in the window, the EOS
    between them is an ordinary token, and positions do not restart.

    If batches are `filled`, the last one of an epoch has as many rows as the others: empty rows without labels, which
    begin past the end of the stream. All steps then have one shape.
    """

    is_drawn = False

    def __init__(
        self, store: DocumentStore, length: int, n_rows: int, seed: int = 0, joined: bool = False, filled: bool = False
    ) -> None:
        self.store, self.length, self.n_rows, self.seed = store, length, n_rows, seed
        self.joined, self.filled = joined, filled
        self.n_tokens = len(store.tokens)

    def epoch(self, epoch: int) -> list[np.ndarray]:
        """Plan the batches of one epoch in order: a list of arrays of places."""
        spare = self.n_tokens - self.length
        if spare < 0:
            raise DataError(
                f"{self.store.path}: {count(self.n_tokens, 'token')} {agree(self.n_tokens, 'does', 'do')} not fill "
                f"one window of {count(self.length, 'token')}",
                "add text, or set a smaller data.length",
            )
        rng = np.random.default_rng((self.seed, epoch))
        first = rng.integers(min(self.length, spare + 1))
        places = rng.permutation(np.arange(first, spare + 1, self.length))
        n_missing = -len(places) % self.n_rows
        if self.filled and len(places) > self.n_rows:
            places = np.concatenate([places, np.full(n_missing, self.n_tokens)])
        return self._cut(places)

    def steps(self, epoch: int, group: int) -> list[list[np.ndarray]]:
        """Return the batches of one epoch in groups of `group` (ranks * accumulation); a group is one optimiser step.

        An incomplete last group is filled with the first batches of the epoch, whose rows then occur twice.
        """
        return in_groups(self.epoch(epoch), group)

    def whole(self) -> list[np.ndarray]:
        """Plan batches with every token once, in order; the last window may extend past the end of the stream."""
        return self._cut(np.arange(0, self.n_tokens, self.length))

    def count(self, places: np.ndarray) -> int:
        """Return the number of labels in a batch, without reading it."""
        return int(np.minimum(self.length, self.n_tokens - places).sum())

    def batch(self, places: np.ndarray, key: tuple[int, int] = (0, 0)) -> TextBatch:
        """Read the batch whose rows begin at `places` (B,)."""
        return rows_at(self.store, places, self.length, self.joined)

    def read(self) -> Iterator[TextBatch]:
        """Yield the batches that `whole()` plans: the text once, in order."""
        return map(self.batch, self.whole())

    def _cut(self, places: np.ndarray) -> list[np.ndarray]:
        return np.split(places, range(self.n_rows, len(places), self.n_rows))


def rows_at(store: DocumentStore, places: np.ndarray, length: int, joined: bool) -> TextBatch:
    """Read `length` labels from each of `places` (B,). Past the end of the stream the input is ^, without labels."""
    tokens, offsets, n_tokens = store.tokens, store.offsets, len(store.tokens)
    at = places[:, None] + np.arange(length)  # (B, T)
    exists = at < n_tokens
    document = np.searchsorted(offsets, at, side="right") - 1
    begins = offsets[document]
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

"""Store the sentences of documents as one stream of tokens on disk, for the training of encoders.

    stream         a1 a2 EOS a3 EOS | b1 b2 b3 EOS | …        EOS ends a sentence, | a document; text never contains EOS
    text tokens    a1 a2     a3       b1 b2 b3       …        the stream without EOS, in which positions are counted

The format is the same as for running text (`DocumentStore`), with an EOS after each sentence.
"""

from collections.abc import Callable, Iterable
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Literal

import numpy as np

from clearformer.data.sentence_ends import lines, marked
from clearformer.data.store import DocumentStore, DocumentWriter, Ragged
from clearformer.data.text import CHUNK, chunks
from clearformer.text import Tokenizer

Cut = Literal["line", "mark"]
CUTS: dict[Cut, Callable[[str], list[str]]] = {"line": lines, "mark": marked}


def store_sentences(documents: Iterable[str], tokenizer: Tokenizer, path: Path, cut: Cut = "line") -> DocumentStore:
    """Tokenise documents sentence by sentence; sentences without tokens are dropped."""
    eos = tokenizer.eos_id
    with DocumentWriter(path, tokenizer.vocab_size, eos, {"tokenizer": tokenizer.fingerprint()}) as writer:
        for texts in chunks(documents, CHUNK):
            parts = [CUTS[cut](text) for text in texts]
            encoded = iter(tokenizer.encode(list(chain.from_iterable(parts))))
            rows = (chain.from_iterable([*ids, eos] for ids in islice(encoded, len(part)) if ids) for part in parts)
            writer.add([row for row in map(list, rows) if row])
        return writer.close()


class Sentences:
    """The n sentences of D documents.

    starts     (n + 1,)  where each sentence begins among the text tokens; last, the number of text tokens
    documents  (D + 1,)  index of the first sentence of each document; last, n
    """

    def __init__(self, store: DocumentStore, eos_id: int) -> None:
        self.path, self.tokens = store.path, store.tokens
        in_stream = np.append(0, np.flatnonzero(store.tokens == eos_id) + 1)
        self.starts = in_stream - np.arange(len(in_stream))  # minus one EOS for each sentence before
        self.documents = np.searchsorted(in_stream, store.offsets)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def n_text_tokens(self) -> int:
        """The number of tokens, without EOS."""
        return int(self.starts[-1])

    def read(self, begins: np.ndarray, ends: np.ndarray) -> Ragged:
        """Return the text tokens from `begins` (B,) to `ends` (B,), both counted without EOS."""
        lengths = ends - begins
        at = np.repeat(begins - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
        return Ragged(self.tokens[at + np.searchsorted(self.starts, at, side="right") - 1], lengths)

    def full(self, capacity: int) -> np.ndarray:
        """Divide the text into rows of at most `capacity` tokens. Returns the begin and end of each row, (n, 2).

        A row has as many sentences of one document as fit. A sentence longer than `capacity` continues in the next row,
        so that every token is in exactly one row.
        """
        rows = []
        for begin, last in pairwise(self.starts[self.documents].tolist()):
            while begin < last:
                end = min(int(self.starts[np.searchsorted(self.starts, begin + capacity, side="right") - 1]), last)
                rows.append((begin, end if end > begin else begin + capacity))
                begin = rows[-1][1]
        return np.array(rows, "int64").reshape(-1, 2)

    def runs(self, capacity: int) -> np.ndarray:
        """Return rows (n, 2) of two or more consecutive sentences: the index of the first, and one past the last.

        A row has as many sentences as fit into `capacity`, but at least two. A single sentence left at the end of a
        document is paired with the one before it, which is then in two rows. A document of one sentence has no row.
        """
        rows = []
        for begin, last in pairwise(self.documents.tolist()):
            while last - begin >= 2:
                fitting = int(np.searchsorted(self.starts, self.starts[begin] + capacity, side="right")) - 1
                end = min(max(fitting, begin + 2), last)
                rows.append((begin, end))
                begin = end - 1 if end == last - 1 else end
        return np.array(rows, "int64").reshape(-1, 2)

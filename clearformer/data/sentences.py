"""The sentences of documents, in one stream of tokens on disk: what models that read a text whole are trained on.

    stream    a1 a2 EOS a3 EOS | b1 b2 b3 EOS | …        EOS ends a sentence, | a document; text never spells EOS
    words     a1 a2     a3       b1 b2 b3       …        the same without EOS: places are counted here

So the store is that of running text (`DocumentStore`), in which each sentence ends as a document does.
"""

import re
from collections.abc import Callable, Iterable
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Literal

import numpy as np

from clearformer.data.store import DocumentStore, DocumentWriter, Ragged
from clearformer.data.text import CHUNK, chunks
from clearformer.text import Tokenizer

Cut = Literal["line", "mark"]
END = re.compile(r"(?<=[.!?…।])\s+|(?<=[.!?…।][\"'”’)\]])\s+|\s*\n\s*\n\s*")


def lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def marked(text: str) -> list[str]:
    """Cut after . ! ? … and what closes after them, wherever a space follows; "Mr. Smith" is cut too."""
    return [part for part in END.split(text) if part.strip()]


CUTS: dict[Cut, Callable[[str], list[str]]] = {"line": lines, "mark": marked}


def store_sentences(documents: Iterable[str], tokenizer: Tokenizer, path: Path, cut: Cut = "line") -> DocumentStore:
    """Tokenise documents sentence by sentence; those without a token are left out."""
    eos = tokenizer.eos_id
    with DocumentWriter(path, tokenizer.vocab_size, eos, {"tokenizer": tokenizer.fingerprint()}) as writer:
        for texts in chunks(documents, CHUNK):
            parts = [CUTS[cut](text) for text in texts]
            encoded = iter(tokenizer.encode(list(chain.from_iterable(parts))))
            rows = (chain.from_iterable([*ids, eos] for ids in islice(encoded, len(some)) if ids) for some in parts)
            writer.add([row for row in map(list, rows) if row])
        return writer.close()


class Sentences:
    """n sentences of D documents.

    starts     (n + 1,)  where each sentence begins, a place among the words; the last ends them all
    documents  (D + 1,)  the number of the first sentence of each document, and n
    """

    def __init__(self, store: DocumentStore, eos_id: int) -> None:
        self.path, self.tokens = store.path, store.tokens
        in_stream = np.append(0, np.flatnonzero(store.tokens == eos_id) + 1)
        self.starts = in_stream - np.arange(len(in_stream))  # one EOS for each sentence before
        self.documents = np.searchsorted(in_stream, store.offsets)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def n_words(self) -> int:
        return int(self.starts[-1])

    def read(self, begins: np.ndarray, ends: np.ndarray) -> Ragged:
        """The words from begins (B,) to ends (B,), places among words: whatever EOS stands between is passed over."""
        lengths = ends - begins
        at = np.repeat(begins - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
        return Ragged(self.tokens[at + np.searchsorted(self.starts, at, side="right") - 1], lengths)

    def full(self, room: int) -> np.ndarray:
        """Rows (n, 2), begin and end among the words: as many sentences of one document as fit into `room`.

        A sentence that is longer than that goes on in the next row, so that every word is in exactly one.
        """
        rows = []
        for begin, last in pairwise(self.starts[self.documents].tolist()):
            while begin < last:
                end = min(int(self.starts[np.searchsorted(self.starts, begin + room, side="right") - 1]), last)
                rows.append((begin, end if end > begin else begin + room))
                begin = rows[-1][1]
        return np.array(rows, "int64").reshape(-1, 2)

    def runs(self, room: int) -> np.ndarray:
        """Rows (n, 2) of numbers, the first sentence and the one after the last: two or more that follow one another.

        As many as fit into `room`, but at least two. A sentence that is left over at the end of a document is paired
        with the one before it, which is then in two rows. A document of one sentence has no row.
        """
        rows = []
        for begin, last in pairwise(self.documents.tolist()):
            while last - begin >= 2:
                fitting = int(np.searchsorted(self.starts, self.starts[begin] + room, side="right")) - 1
                end = min(max(fitting, begin + 2), last)
                rows.append((begin, end))
                begin = end - 1 if end == last - 1 else end
        return np.array(rows, "int64").reshape(-1, 2)

"""Labelled words: files to sentences, and sentences to rows of tokens with the class, or the value, of every word.

    TagSource(path="news.conll")          a word a line, its label in the last column; blank lines divide sentences

        EU       NNP  B-ORG
        rejects  VBZ  O

    TagSource(path="news.jsonl")          {"tokens": ["EU", "rejects"], "labels": ["B-ORG", "O"]} a line

Columns are divided by tabs, or else by spaces; all lines of a file have as many. Files may be gzipped.
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import torch
from pydantic import Field

from clearformer.config import Config
from clearformer.data.batch import IGNORE, EncoderBatch, is_asked
from clearformer.data.collate import spread
from clearformer.data.labels import Column, LabelRows, pad_rows
from clearformer.data.sources import read_lines, read_objects, require_file, some
from clearformer.data.store import Ragged
from clearformer.data.text import kind_of
from clearformer.errors import DataError
from clearformer.text import Tokenizer
from clearformer.text.normalize import clean

DOCUMENT = "-DOCSTART-"  # what CoNLL's files of 2003 say between documents, as if it were a word


class Tagged(NamedTuple):
    """A sentence word by word, and what was said of each."""

    words: tuple[str, ...]
    labels: tuple[str, ...]

    @property
    def texts(self) -> tuple[str]:
        return (" ".join(self.words),)


class TagSource(Config):
    """Where labelled words lie and how to read them."""

    path: Path = Field(description="one .conll or .jsonl file")
    words: Column | None = Field(None, description="column number, 0 if not given; `tokens` in JSON")
    labels: Column | None = Field(None, description="the same of their labels, the last if not given; `labels` in JSON")

    def read(self) -> Generator[Tagged]:
        """Stream the sentences in order. A wrong path or kind is refused at once, a bad line when it is reached."""
        require_file(self.path)
        kind = kind_of(self.path)
        if kind not in (".conll", ".jsonl"):
            raise DataError(
                f"{self.path}: a file that ends in `{kind}` labels no words", "use .conll, a word a line, or .jsonl"
            )
        for column in (self.words, self.labels):
            if column is not None and isinstance(column, str) != (kind == ".jsonl"):
                raise DataError(
                    f"{self.path}: `{column}` is no column of a {kind} file",
                    "columns of .conll have numbers, counted from 0, and those of .jsonl names",
                )
        return some(self.path, self._read_conll() if kind == ".conll" else self._read_jsonl(), "sentence")

    def _read_conll(self) -> Generator[Tagged]:
        width, found = 0, list[tuple[str, str]]()
        with closing(read_lines(self.path)) as lines:
            for number, line in enumerate(lines, 1):
                cells = line.split("\t" if "\t" in line else None)
                if not line.strip():
                    if found:
                        yield sentence(found)
                    found = []
                elif cells[0] != DOCUMENT:
                    width = width or len(cells)
                    found.append(self._pick(cells, width, f"{self.path}:{number}"))
        if found:
            yield sentence(found)

    def _pick(self, cells: Sequence[str], width: int, where: str) -> tuple[str, str]:
        """The word and the label of a line, which has as many columns as those before it."""
        word, label = self.words or 0, width - 1 if self.labels is None else self.labels
        needed = max(2, int(word) + 1, int(label) + 1)
        if len(cells) != width or width < needed:
            wanted = f"{needed} are needed" if width < needed else f"the lines before have {width}"
            raise DataError(
                f"{where}: {len(cells)} column{'s' * (len(cells) > 1)} where {wanted}",
                "a word and its label a line, tabs or spaces between them, a blank line after each sentence",
            )
        return filled(cells[int(word)], "word", where), filled(cells[int(label)], "label", where)

    def _read_jsonl(self) -> Generator[Tagged]:
        keys = str(self.words or "tokens"), str(self.labels or "labels")
        with closing(read_objects(self.path)) as rows:
            for where, row in rows:
                if row is None:
                    continue
                words, labels = (strings(row, key, where) for key in keys)
                if len(words) != len(labels):
                    raise DataError(f"{where}: {len(words)} words and {len(labels)} labels", "every word needs one")
                pairs = zip(words, labels)
                found = [(filled(word, "word", where), filled(label, "label", where)) for word, label in pairs]
                if found:
                    yield sentence(found)


def sentence(pairs: Sequence[tuple[str, str]]) -> Tagged:
    return Tagged(tuple(word for word, _ in pairs), tuple(label for _, label in pairs))


def filled(text: str, what: str, where: str) -> str:
    if not (cleaned := clean(text)):
        raise DataError(f"{where}: a {what} is empty", "leave such words out")
    return cleaned


def strings(row: dict[str, object], key: str, where: str) -> list[str]:
    """A list in a JSON object. Its numbers, which labels may be, are taken as they are written."""
    if key not in row:
        raise DataError(f"{where}: no key `{key}`", f"the keys there are: {', '.join(row) or 'none'}")
    value = row[key]
    if not isinstance(value, list) or not all(isinstance(item, str | int | float) for item in value):
        raise DataError(f"{where}: `{key}` is no list of strings", 'for example {"tokens": ["EU"], "labels": ["ORG"]}')
    return list(map(str, value))


def is_tagged(path: Path) -> bool:
    """Whether a file labels words, as its kind says, or the first object of its JSON, which has `tokens`."""
    if kind_of(path) != ".jsonl" or not path.is_file():
        return kind_of(path) == ".conll"
    with closing(read_objects(path)) as rows:
        return "tokens" in next((row for _, row in rows if row is not None), {})


@dataclass(frozen=True)
class TagRows(LabelRows):
    """Sentences as the model reads them; `classes` has one for every token, IGNORE, or NaN, where no word begins.

    A word is judged by its first piece. What is too long for one row goes on in the next.
    """

    @classmethod
    def of(cls, examples: Sequence[Tagged], classes: np.ndarray, tokenizer: Tokenizer, max_tokens: int) -> Self:  # type: ignore[override]
        """classes: those of all words (words,), one sentence after another."""
        tokens, places = lay_words([example.words for example in examples], tokenizer, max_tokens)
        spread_out = np.full(len(tokens.flat), unasked(classes), classes.dtype)
        spread_out[places] = classes
        return cls(tokens, Ragged(np.zeros_like(tokens.flat), tokens.lengths), spread_out)

    def __len__(self) -> int:
        return len(self.tokens.lengths)

    def count(self, index: np.ndarray) -> int:
        return int(is_asked(torch.from_numpy(self.pick(self.classes, index).flat)).sum())

    def batch(self, index: np.ndarray, pad_id: int) -> EncoderBatch:
        tokens, segments, labels = (self.pick(x, index) for x in (self.tokens.flat, self.segments.flat, self.classes))
        batch = pad_rows(tokens, segments, pad_id)
        table = torch.from_numpy(spread(labels, batch.tokens.size(1), unasked(self.classes)))  # (B, T)
        return replace(batch, labels=table, n_tokens=-1)


def unasked(classes: np.ndarray) -> float:
    """What stands where no word begins."""
    return float("nan") if classes.dtype.kind == "f" else IGNORE


def lay_words(sentences: Sequence[Sequence[str]], tokenizer: Tokenizer, max_tokens: int) -> tuple[Ragged, np.ndarray]:
    """Framed rows of at most max_tokens, and where in their flat array the first piece of every word is, (words,).

    A word of which the tokenizer leaves nothing is judged by the piece after it.
    """
    before, after = tokenizer.frame()
    n_frame = len(before) + len(after)
    room = max_tokens - n_frame
    if room < 1:
        raise DataError(f"rows of {max_tokens} tokens have no room for words", "set data.max_tokens higher")
    rows, places, n = list[list[int]](), [np.empty(0, "int64")], 0
    for words in sentences:
        text = " ".join(words)
        ids, offsets = tokenizer.encode_with_offsets(text)
        if not ids:
            raise DataError(f"nothing is left of {text[:40]!r} once it is tokenised", "leave such sentences out")
        starts = np.cumsum([0, *(len(word) + 1 for word in words[:-1])])
        first = np.searchsorted([end for _, end in offsets], starts, side="right").clip(max=len(ids) - 1)
        places.append(n + len(before) + first + first // room * n_frame)
        own = [[*before, *ids[i : i + room], *after] for i in range(0, len(ids), room)]
        rows += own
        n += len(ids) + len(own) * n_frame
    return Ragged.of(rows), np.concatenate(places)

"""Read labelled words from files, and convert sentences to rows of tokens with the class, or value, of every word.

    TagSource(path="news.conll")          one word per line, its label in the last column; blank lines end sentences

        EU       NNP  B-ORG
        rejects  VBZ  O

    TagSource(path="news.jsonl")          one {"tokens": ["EU", "rejects"], "labels": ["B-ORG", "O"]} per line

Columns of .conll files are separated by tabs, or by spaces in lines without tabs; all lines have the same number of
columns. Other tables whose cells can be lists, such as .json and .parquet files, are read like .jsonl.
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import torch
from pydantic import Field

from clearformer.data.batch import IGNORE, EncoderBatch, is_labelled
from clearformer.data.collate import spread
from clearformer.data.files.columnar import is_dataset
from clearformer.data.files.open import TABLES, open_table
from clearformer.data.files.table import Table
from clearformer.data.labels import OPTIONS, Column, LabelRows, pad_rows
from clearformer.data.source import Source
from clearformer.data.sources import file_type, non_empty, read_lines, require_file
from clearformer.data.store import Ragged
from clearformer.data.tally import Skipped
from clearformer.errors import DataError
from clearformer.text import Tokenizer
from clearformer.text.normalize import clean
from clearformer.wording import count

LISTS = (".jsonl", ".json", ".parquet")  # file types whose cells can be lists
LABELS = ("labels", "tags", "ner_tags", "pos_tags")
DOCUMENT = "-DOCSTART-"  # the pseudo-word between documents in the files of CoNLL 2003


class Tagged(NamedTuple):
    """The words of a sentence, and their labels."""

    words: tuple[str, ...]
    labels: tuple[str, ...]

    @property
    def texts(self) -> tuple[str]:
        return (" ".join(self.words),)


class TagSource(Source):
    """The path of labelled words, and how to read them."""

    path: Path = Field(description="path of a .conll or .jsonl file, or of another data table with lists")
    words: Column | None = Field(
        None, description="column of the words: a number from 0 (default: 0), or a name in .jsonl (default: `tokens`)"
    )
    labels: Column | None = Field(
        None,
        description="column of the labels: a number from 0 (default: the last), or a name (default: `labels`)",
    )

    def suits(self, path: Path) -> bool:
        """Whether the columns can be used for another file; they are always taken from the recipe."""
        return True

    def read(self, skipped: Skipped | None = None) -> Generator[Tagged]:
        """Stream the sentences in order. A wrong path or file type raises at once, a bad row when it is reached.

        Rows without words are counted in `skipped`; in .conll files, blank lines only end sentences.
        """
        suffix = file_type(self.path)
        if suffix != ".conll" and suffix not in LISTS and not is_dataset(self.path):
            require_file(self.path)
            raise DataError(
                f"{self.path}: unsupported file type for labelled words",
                "use a .conll file, with one word per line, or a .jsonl, .json or .parquet file with lists",
            )
        table = None if suffix == ".conll" else open_table(self.path)
        for column in (self.words, self.labels):
            if column is not None and isinstance(column, str) != (table is not None):
                raise DataError(
                    f"{self.path}: `{column}` is not a column of a {suffix or 'dataset'} file",
                    "columns of .conll files have numbers, counted from 0; columns of other files have names",
                )
        if table is None:
            require_file(self.path)
        rows = self._read_conll() if table is None else self._read_table(table, skipped or Skipped())
        return non_empty(self.path, rows, "sentence")

    def _read_conll(self) -> Generator[Tagged]:
        width, words = 0, list[tuple[str, str]]()
        with closing(read_lines(self.path)) as lines:
            for number, line in enumerate(lines, 1):
                cells = line.split("\t" if "\t" in line else None)
                if not line.strip():
                    if words:
                        yield sentence(words)
                    words = []
                elif cells[0] != DOCUMENT:
                    width = width or len(cells)
                    words.append(self._pick(cells, width, f"{self.path}:{number}"))
        if words:
            yield sentence(words)

    def _pick(self, cells: Sequence[str], width: int, where: str) -> tuple[str, str]:
        """Return the word and the label of a line. A line with more or fewer columns than the first is an error."""
        word, label = self.words or 0, width - 1 if self.labels is None else self.labels
        needed = max(2, int(word) + 1, int(label) + 1)
        if len(cells) != width or width < needed:
            reason = f"{needed} are needed" if width < needed else f"earlier lines have {width}"
            raise DataError(
                f"{where}: {count(len(cells), 'column')}, but {reason}",
                "write a word and its label per line, separated by tabs or spaces, and a blank line after a sentence",
            )
        return filled(cells[int(word)], "word", where), filled(cells[int(label)], "label", where)

    def _read_table(self, table: Table, skipped: Skipped) -> Generator[Tagged]:
        named = next((name for name in LABELS if name in table.names()), LABELS[0])
        keys = str(self.words or "tokens"), str(self.labels or named)
        with closing(table.read(keys, OPTIONS)) as rows:
            for where, row in rows:
                words, labels = (strings(value, key, where) for value, key in zip(row, keys))
                if len(words) != len(labels):
                    raise DataError(
                        f"{where}: {count(len(words), 'word')} but {count(len(labels), 'label')}",
                        "give exactly one label per word",
                    )
                pairs = zip(words, labels)
                tagged = [(filled(word, "word", where), filled(label, "label", where)) for word, label in pairs]
                if tagged:
                    yield sentence(tagged)
                else:
                    skipped.add(where)


def sentence(pairs: Sequence[tuple[str, str]]) -> Tagged:
    return Tagged(tuple(word for word, _ in pairs), tuple(label for _, label in pairs))


def filled(text: str, what: str, where: str) -> str:
    """Return the cleaned text; an empty text is an error."""
    if not (cleaned := clean(text)):
        raise DataError(f"{where}: a {what} is empty", "fill it in, or remove the word")
    return cleaned


def strings(value: object, key: str, where: str) -> list[str]:
    """Return a list of strings. Numbers, which labels may be, are converted to strings; a blank row has no words."""
    if value == "":
        return []
    if not isinstance(value, list) or not all(isinstance(item, str | int | float) for item in value):
        raise DataError(
            f"{where}: `{key}` is not a list of strings", 'write, for example, {"tokens": ["EU"], "labels": ["ORG"]}'
        )
    return list(map(str, value))


def is_tagged(path: Path) -> bool:
    """Whether a file labels words: a .conll file, or a table with a column `tokens`, in a header beside their labels.

    TagSource refuses a table whose cells cannot be lists.
    """
    if file_type(path) == ".conll":
        return True
    if not is_dataset(path) and not (path.is_file() and file_type(path) in TABLES):
        return False
    table = open_table(path)
    names = table.names()
    return "tokens" in names and (table.has_names or not {*LABELS}.isdisjoint(names))


@dataclass(frozen=True)
class TagRows(LabelRows):
    """Sentences as rows of tokens, with one entry of `classes` per token: IGNORE (or NaN) where no word begins.

    The label of a word is predicted at its first token. A sentence that is too long for one row continues in the next.
    """

    @classmethod
    def of(  # type: ignore[override]
        cls, examples: Sequence[Tagged], classes: np.ndarray, tokenizer: Tokenizer, max_tokens: int, *_: object
    ) -> Self:
        """Build the rows; `classes` (words,) lists the classes, or values, of the words of all sentences in order."""
        tokens, places = word_rows([example.words for example in examples], tokenizer, max_tokens)
        token_classes = np.full(len(tokens.flat), missing_label(classes), classes.dtype)
        token_classes[places] = classes
        return cls(tokens, Ragged(np.zeros_like(tokens.flat), tokens.lengths), token_classes)

    def __len__(self) -> int:
        return len(self.tokens.lengths)

    def count(self, index: np.ndarray) -> int:
        return int(is_labelled(torch.from_numpy(self.pick(self.classes, index).flat)).sum())

    def batch(self, index: np.ndarray, pad_id: int) -> EncoderBatch:
        tokens, segments, labels = (self.pick(x, index) for x in (self.tokens.flat, self.segments.flat, self.classes))
        batch = pad_rows(tokens, segments, pad_id)
        table = torch.from_numpy(spread(labels, batch.tokens.size(1), missing_label(self.classes)))  # (B, T)
        return replace(batch, labels=table, n_tokens=-1)


def missing_label(classes: np.ndarray) -> float:
    """Return the entry for a token that does not begin a word: IGNORE, or NaN in a regression."""
    return float("nan") if classes.dtype.kind == "f" else IGNORE


def word_rows(sentences: Sequence[Sequence[str]], tokenizer: Tokenizer, max_tokens: int) -> tuple[Ragged, np.ndarray]:
    """Return rows of at most `max_tokens`, special tokens included, and the index of each word's first token in `flat`.

    The indices have shape (words,). A word without tokens gets the index of the next token.
    """
    before, after = tokenizer.specials_around()
    n_special = len(before) + len(after)
    capacity = max_tokens - n_special
    if capacity < 1:
        raise DataError(
            f"rows of {count(max_tokens, 'token')} are too short for text and {count(n_special, 'special token')}",
            "set a larger data.max_tokens",
        )
    rows, places, n = list[list[int]](), [np.empty(0, "int64")], 0
    for words in sentences:
        text = " ".join(words)
        ids, offsets = tokenizer.encode_with_offsets(text)
        if not ids:
            raise DataError(f"the tokenizer produces no tokens for {text[:40]!r}", "remove the sentence")
        starts = np.cumsum([0, *(len(word) + 1 for word in words[:-1])])
        first = np.searchsorted([end for _, end in offsets], starts, side="right").clip(max=len(ids) - 1)
        places.append(n + len(before) + first + first // capacity * n_special)
        sentence_rows = [[*before, *ids[i : i + capacity], *after] for i in range(0, len(ids), capacity)]
        rows += sentence_rows
        n += len(ids) + len(sentence_rows) * n_special
    return Ragged.of(rows), np.concatenate(places)

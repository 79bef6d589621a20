"""Read labelled texts from files, and convert them to rows of tokens with their classes.

    LabelSource(path="reviews.tsv")                                         text and label, separated by a tab
    LabelSource(path="reviews.csv.gz", text="sentence", label="label")      a file with a header
    LabelSource(path="pairs.tsv", text=[3, 4], label=0)                     pairs of texts
    LabelSource(path="reviews.jsonl")                                       one {"text": "…", "label": "good"} per line

All file types of files/open.py are supported. Text is cleaned by `text.normalize.clean`. Blank rows are skipped.
"""

import re
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from pydantic import Field, NonNegativeInt

from clearformer.checkpoint import load_tensors, save_tensors
from clearformer.data.batch import EncoderBatch
from clearformer.data.collate import spread
from clearformer.data.files.columns import label_columns
from clearformer.data.files.open import open_table, require_names
from clearformer.data.files.table import Table
from clearformer.data.source import Source
from clearformer.data.sources import as_text, non_empty
from clearformer.data.store import Ragged, gather
from clearformer.data.tally import SHOWN, Skipped, TooLong, short
from clearformer.errors import ConfigError, DataError
from clearformer.text import Tokenizer
from clearformer.text.normalize import clean
from clearformer.wording import agree, count, listed

Column = NonNegativeInt | str
OPTIONS = "--text-columns and --label-column"
MAX_VALUE = 1e18  # of a label in a regression: the squares of a batch stay below the largest float32, 3.4e38
SPLITS = {"train": "the training data", "valid": "the validation data", "test": "the test data"}


class Labelled(NamedTuple):
    """A text, or a pair of texts, and its label."""

    text: str
    pair: str | None
    label: str

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text,) if self.pair is None else (self.text, self.pair)

    @property
    def labels(self) -> tuple[str]:
        return (self.label,)


class Placed(Labelled):
    """An example that remembers its location in the file, for messages. It is equal to the same example elsewhere."""

    where: str = ""


class LabelSource(Source):
    """The path of labelled texts, and how to read them."""

    path: Path = Field(description="path of a data table (.tsv, .csv, .jsonl, .parquet …)")
    text: Column | tuple[Column, Column] | None = Field(
        None,
        description="text column, a number from 0 or a name; two columns for pairs; default: 0, or `text` in JSON",
    )
    label: Column | None = Field(
        None, description="label column, a number from 0 or a name; default: 1, or `label` in JSON"
    )

    def suits(self, path: Path) -> bool:
        """Whether columns are chosen and another file has them, too. The columns of text pairs suit every file."""
        chosen = [column for column in (self.text, self.label) if column is not None]
        if isinstance(self.text, tuple):
            return True
        table = open_table(path)
        names = table.names()
        return bool(chosen) and all(column in names if is_name(column) else not table.has_names for column in chosen)

    def read(self, skipped: Skipped | None = None) -> Generator[Labelled]:
        """Stream the examples in order. A wrong path or file type raises at once, a bad row when it is reached.

        Blank rows are counted in `skipped`.
        """
        table = open_table(self.path)
        columns = self._columns(table.has_names)
        require_names(table, columns, OPTIONS)
        return non_empty(self.path, read_labelled(table, columns, skipped or Skipped()), "labelled text")

    def _columns(self, is_named: bool) -> list[Column]:
        """Return the text columns and the label column. If one of them is a name, the defaults are names, too."""
        settings = [*(self.text if isinstance(self.text, tuple) else (self.text,)), self.label]
        defaults: tuple[Column, Column] = ("text", "label") if is_named or any(map(is_name, settings)) else (0, 1)
        columns = [defaults[i == len(settings) - 1] if column is None else column for i, column in enumerate(settings)]
        if any(map(is_name, columns)) and not all(map(is_name, columns)):
            raise DataError(
                f"{self.path}: the columns {listed(columns)} mix names and numbers",
                "use names for all of them, or numbers for a file without a header line",
            )
        return columns


def read_labelled(table: Table, columns: Sequence[Column], skipped: Skipped) -> Generator[Labelled]:
    """Stream the examples of a table; `columns` are the text columns, then the label column. Blank rows are skipped."""
    *texts, label = map(str, columns)
    with closing(table.read(columns, OPTIONS)) as rows:
        for where, values in rows:
            strings = [as_text(value, column, where) for value, column in zip(values, texts)]
            strings.append(as_label(values[-1], label, where))
            if any(string.strip() for string in strings):
                yield example(strings, where)
            else:
                skipped.add(where)


def as_label(value: object, column: str, where: str) -> str:
    """Return a label as a string. It may be a number, true or false."""
    return str(value) if isinstance(value, int | float) else as_text(value, column, where)


def named_columns(path: Path) -> dict[str, Any]:
    """Return the text and label columns if their names are well known, otherwise {}."""
    if not path.exists():
        return {}
    table = open_table(path)
    return label_columns(table.names(), is_header=not table.has_names)


def note_of_header(source: "LabelSource", examples: Sequence[Labelled]) -> str | None:
    """Return a note if the first row, read as an example, seems to be a header: no other row has its label."""
    first, labels = next(source.read()), Counter(example.label for example in examples)
    if labels[first.label] > 1 or 2 * len(labels) > len(examples):  # in a file of names or values, every label is rare
        return None
    *texts, label = open_table(source.path).names()[: len(first.texts) + 1]
    is_plain = all(re.fullmatch(r"[\w.-]+", name) for name in (*texts, label))
    options = f"--text-columns {','.join(texts)} --label-column {label}" if is_plain else f"choose {OPTIONS}"
    return (
        f"{source.path}: the first row is read as an example, but no other row has its label, `{short(first.label)}`; "
        f"if it is a header: {options}"
    )


def is_name(column: object) -> bool:
    return isinstance(column, str)


def example(cells: Sequence[str], where: str) -> Labelled:
    *texts, label = map(clean, cells)
    if not label:
        raise DataError(f"{where}: the label is empty", "add a label, or remove the line")
    labelled = Placed(texts[0], texts[1] if len(texts) > 1 else None, label)
    labelled.where = where
    return labelled


def label_value(label: str) -> float:
    """Return the numeric value of a label in a regression."""
    try:
        value = float(label)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise DataError(
            f"the label `{label}` is not a number",
            "use numeric labels, or set data.regression = false to predict classes",
        )
    if abs(value) > MAX_VALUE:
        raise DataError(
            f"the label `{label}` is too large: a regression takes values up to {MAX_VALUE:.0e}",
            "scale the labels, for example to other units",
        )
    return value


def number_classes(labels: Sequence[str], classes: Sequence[str], split: str) -> np.ndarray:
    """Return the index of each label among the classes, (n,) int64; a label that is not a class is an error."""
    index = {label: i for i, label in enumerate(classes)}
    if unknown := sorted(set(labels) - index.keys()):
        n, names = len(unknown), listed((f"`{label}`" for label in unknown), most=5)
        raise DataError(
            f"{count(n, 'label')} in {SPLITS.get(split, split)} {agree(n, 'does', 'do')} not occur "
            f"in the training data: {names}",
            f"the classes are {', '.join(classes)}",
        )
    return np.array([index[label] for label in labels], "int64")


@dataclass(frozen=True)
class LabelRows:
    """Texts as rows of tokens with special tokens, truncated to fit, and the class, or the value, of each text.

    tokens, segments: n ragged rows; classes: (n,) int64, or float32 in a regression.
    """

    tokens: Ragged
    segments: Ragged
    classes: np.ndarray

    @classmethod
    def of(
        cls,
        examples: Sequence[Labelled],
        classes: np.ndarray,
        tokenizer: Tokenizer,
        max_tokens: int,
        too_long: TooLong = "cut",
        changed: "Changed | None" = None,
    ) -> Self:
        """Build the rows. Texts longer than `max_tokens` are cut, dropped or split, and counted in `changed`."""
        pairs = None if examples[0].pair is None else [str(example.pair) for example in examples]
        texts, long = [example.text for example in examples], list[int]()
        tokens, segments = tokenizer.encode_with_specials(texts, pairs, max_tokens, long)
        if changed is not None:
            changed.add([examples[i] for i in long])
        if too_long != "cut":
            parts = {i: windows(examples[i], tokenizer, max_tokens) if too_long == "split" else [] for i in long}
            rows = [(i, part) for i, row in enumerate(zip(tokens, segments)) for part in parts.get(i, [row])]
            classes = classes[[i for i, _ in rows]]
            tokens, segments = ([part[side] for _, part in rows] for side in (0, 1))
        return cls(Ragged.of(tokens), Ragged.of(segments), classes)

    def __len__(self) -> int:
        return len(self.classes)

    def count(self, index: np.ndarray) -> int:
        """Return the number of labels in the rows `index`."""
        return len(index)

    def batch(self, index: np.ndarray, pad_id: int) -> EncoderBatch:
        tokens, segments = (self.pick(side.flat, index) for side in (self.tokens, self.segments))
        return pad_rows(tokens, segments, pad_id, self.classes[index])

    def pick(self, flat: np.ndarray, index: np.ndarray) -> Ragged:
        """Return the values of the rows `index` from `flat`, an array with one value per token."""
        return gather(flat, np.concatenate([[0], np.cumsum(self.tokens.lengths)]), index)

    def save(self, path: Path) -> None:
        tensors = {"tokens": self.tokens.flat, "lengths": self.tokens.lengths, "segments": self.segments.flat}
        save_tensors(path, {name: torch.from_numpy(a) for name, a in {**tensors, "classes": self.classes}.items()})

    @classmethod
    def load(cls, path: Path) -> Self:
        arrays = {name: tensor.numpy() for name, tensor in load_tensors(path)[0].items()}
        tokens, segments = (Ragged(arrays[name], arrays["lengths"]) for name in ("tokens", "segments"))
        return cls(tokens, segments, arrays["classes"])


def windows(example: Labelled, tokenizer: Tokenizer, max_tokens: int) -> list[tuple[list[int], list[int]]]:
    """Divide the tokens of a text into rows of at most `max_tokens`, each with special tokens, and their segments."""
    if example.pair is not None:
        raise ConfigError(
            'data.too_long = "split" is for single texts, but the examples are pairs of texts',
            'set data.too_long = "cut" or "drop"',
        )
    before, after = tokenizer.specials_around()
    [ids] = tokenizer.encode([example.text])
    size = max_tokens - len(before) - len(after)
    rows = [[*before, *ids[i : i + size], *after] for i in range(0, len(ids), size)]
    return [(row, [0] * len(row)) for row in rows]


@dataclass
class Changed:
    """The texts that were too long for a row: their number, and the first of them."""

    n: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, examples: Sequence[Labelled]) -> None:
        self.n += len(examples)
        self.first += [f"{getattr(e, 'where', '')} “{short(e.text)}”".lstrip() for e in examples[:SHOWN]]

    def describe(self, max_tokens: int, too_long: TooLong) -> list[str]:
        """Return the number and the first of the texts, one per line; nothing if there are none."""
        if not self.n:
            return []
        done = {"cut": "cut", "drop": "dropped", "split": "split"}[too_long]
        were = f"{agree(self.n, 'was', 'were')} {done}"
        return [
            f"  {count(self.n, 'text')} of more than {count(max_tokens, 'token')} {were}:",
            *(f"    {example}" for example in self.first),
        ]


def pad_rows(tokens: Ragged, segments: Ragged, pad_id: int, classes: np.ndarray | None = None) -> EncoderBatch:
    """Pad rows to the longest; special tokens are already included. If all are equally long, the mask is None."""
    width = int(tokens.lengths.max())
    mask = np.arange(width) < tokens.lengths[:, None]  # (B, T)
    return EncoderBatch(
        torch.from_numpy(spread(tokens, width, pad_id)),
        None if mask.all() else torch.from_numpy(mask),
        torch.from_numpy(spread(segments, width, 0)),
        classes=None if classes is None else torch.from_numpy(classes),
    )

"""Labelled texts: files to examples, and examples to rows of tokens with their classes.

    LabelSource(path="reviews.tsv")                                         text and label, two columns split by tabs
    LabelSource(path="reviews.tsv.gz", text="sentence", label="label")      the same with a header line
    LabelSource(path="pairs.tsv", text=[3, 4], label=0)                     two texts, judged together
    LabelSource(path="reviews.jsonl")                                       {"text": "…", "label": "good"} a line

Files may be gzipped. Text is UTF-8, cleaned by `text.normalize.clean`. Blank lines are passed over.
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from pydantic import Field, NonNegativeInt

from clearformer.checkpoint import load_tensors, save_tensors
from clearformer.config import Config
from clearformer.data.batch import EncoderBatch
from clearformer.data.collate import spread
from clearformer.data.sources import json_text, read_cells, read_lines, read_objects, require_file, some
from clearformer.data.store import Ragged, gather
from clearformer.errors import DataError
from clearformer.text import Tokenizer
from clearformer.text.normalize import clean

Column = NonNegativeInt | str


class Labelled(NamedTuple):
    """A text, or a pair of texts, and what was said of it."""

    text: str
    pair: str | None
    label: str

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text,) if self.pair is None else (self.text, self.pair)

    @property
    def labels(self) -> tuple[str]:
        return (self.label,)


class LabelSource(Config):
    """Where labelled texts lie and how to read them."""

    path: Path = Field(description="one .tsv, .txt or .jsonl file")
    text: Column | tuple[Column, Column] | None = Field(
        None, description="column number from 0, or name; two of them for pairs. 0 if not given, `text` in JSON"
    )
    label: Column | None = Field(None, description="the same of the label. 1 if not given, `label` in JSON")

    def read(self) -> Generator[Labelled]:
        """Stream the examples in order. A wrong path or kind is refused at once, a bad line when it is reached."""
        require_file(self.path)
        kind = Path(self.path.name.removesuffix(".gz")).suffix
        if kind in (".tsv", ".txt"):
            return some(self.path, self._read_tsv(self._columns(is_named=False)), "labelled text")
        if kind == ".jsonl":
            columns = self._columns(is_named=True)
            if not all(map(is_name, columns)):
                raise DataError(
                    f"{self.path}: JSON has named columns, not numbered ones", 'for example label = "label"'
                )
            return some(self.path, self._read_jsonl([str(column) for column in columns]), "labelled text")
        raise DataError(
            f"{self.path}: a file that ends in `{kind}` is of no known kind",
            "use .tsv, tabs between columns, or .jsonl",
        )

    def _columns(self, is_named: bool) -> list[Column]:
        """The texts' columns, then the label's. One that is named takes the other's usual name with it."""
        given = [*(self.text if isinstance(self.text, tuple) else (self.text,)), self.label]
        usual: tuple[Column, Column] = ("text", "label") if is_named or any(map(is_name, given)) else (0, 1)
        columns = [usual[i == len(given) - 1] if column is None else column for i, column in enumerate(given)]
        if any(map(is_name, columns)) and not all(map(is_name, columns)):
            raise DataError(
                f"{self.path}: of the columns {', '.join(map(str, columns))}, some are named and some numbered",
                "name all of them, or number all; numbers mean that there is no header line",
            )
        return columns

    def _read_tsv(self, columns: Sequence[Column]) -> Generator[Labelled]:
        with closing(read_cells(self.path, columns)) as rows:
            for where, cells in rows:
                if any(cell.strip() for cell in cells):
                    yield example(cells, where)

    def _read_jsonl(self, columns: Sequence[str]) -> Generator[Labelled]:
        with closing(read_objects(self.path)) as rows:
            for where, row in rows:
                if row is not None:
                    label = row.get(columns[-1])
                    if isinstance(label, int | float):  # a number, true or false
                        row = {**row, columns[-1]: str(label)}
                    yield example([json_text(row, key, where) for key in columns], where)


def named_columns(path: Path) -> dict[str, Any]:
    """What the header of a .tsv file says, if its first line is one: a cell of it is `label`.

    The text is `text` or `sentence`, or `sentence1` with `sentence2`, or else the first column that is not the label.
    """
    if Path(path.name.removesuffix(".gz")).suffix not in (".tsv", ".txt") or not path.is_file():
        return {}
    with closing(read_lines(path)) as lines:
        header = next(lines, "").split("\t")
    if "label" not in header or len(header) < 2:
        return {}
    if {"sentence1", "sentence2"} <= set(header):
        return {"text": ("sentence1", "sentence2"), "label": "label"}
    usual = [name for name in ("text", "sentence") if name in header]
    return {"text": [*usual, *(name for name in header if name != "label")][0], "label": "label"}


def is_name(column: Column | None) -> bool:
    return isinstance(column, str)


def example(cells: Sequence[str], where: str) -> Labelled:
    *texts, label = map(clean, cells)
    if not label:
        raise DataError(f"{where}: the label is empty", "every text needs one; leave out those that have none")
    return Labelled(texts[0], texts[1] if len(texts) > 1 else None, label)


def number(label: str) -> float:
    """The value that a label of a regression is."""
    try:
        value = float(label)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise DataError(f"the label `{label}` is not a number", "a regression needs numbers; leave `regression` out")
    return value


def number_classes(labels: Sequence[str], classes: Sequence[str], split: str) -> np.ndarray:
    """The place of each label among the classes (n,) int64; a label that is no class is an error that names it."""
    place = {label: i for i, label in enumerate(classes)}
    if strangers := sorted(set(labels) - place.keys()):
        named = ", ".join(f"`{label}`" for label in strangers[:5]) + (" …" if len(strangers) > 5 else "")
        raise DataError(
            f"{split} has labels that training never sees: {named}", f"the classes are: {', '.join(classes)}"
        )
    return np.array([place[label] for label in labels], "int64")


@dataclass(frozen=True)
class LabelRows:
    """Texts as the model reads them, framed and cut to fit, and the class, or value, of each.

    tokens, segments: rows of lengths (n,); classes (n,) int64, or float32 in a regression.
    """

    tokens: Ragged
    segments: Ragged
    classes: np.ndarray

    @classmethod
    def of(cls, examples: Sequence[Labelled], classes: np.ndarray, tokenizer: Tokenizer, max_tokens: int) -> Self:
        pairs = None if examples[0].pair is None else [str(example.pair) for example in examples]
        tokens, segments = tokenizer.framed([example.text for example in examples], pairs, max_tokens)
        return cls(Ragged.of(tokens), Ragged.of(segments), classes)

    def __len__(self) -> int:
        return len(self.classes)

    def count(self, index: np.ndarray) -> int:
        """What is judged in these rows."""
        return len(index)

    def batch(self, index: np.ndarray, pad_id: int) -> EncoderBatch:
        tokens, segments = (self.pick(side.flat, index) for side in (self.tokens, self.segments))
        return pad_rows(tokens, segments, pad_id, self.classes[index])

    def pick(self, flat: np.ndarray, index: np.ndarray) -> Ragged:
        """Of what lies along the tokens, the part of these rows."""
        return gather(flat, np.concatenate([[0], np.cumsum(self.tokens.lengths)]), index)

    def save(self, path: Path) -> None:
        tensors = {"tokens": self.tokens.flat, "lengths": self.tokens.lengths, "segments": self.segments.flat}
        save_tensors(path, {name: torch.from_numpy(a) for name, a in {**tensors, "classes": self.classes}.items()})

    @classmethod
    def load(cls, path: Path) -> Self:
        found = {name: tensor.numpy() for name, tensor in load_tensors(path)[0].items()}
        tokens, segments = (Ragged(found[name], found["lengths"]) for name in ("tokens", "segments"))
        return cls(tokens, segments, found["classes"])


def pad_rows(tokens: Ragged, segments: Ragged, pad_id: int, classes: np.ndarray | None = None) -> EncoderBatch:
    """Framed rows, padded to the longest; equally long ones need no mask."""
    width = int(tokens.lengths.max())
    mask = np.arange(width) < tokens.lengths[:, None]  # (B, T)
    return EncoderBatch(
        torch.from_numpy(spread(tokens, width, pad_id)),
        None if mask.all() else torch.from_numpy(mask),
        torch.from_numpy(spread(segments, width, 0)),
        classes=None if classes is None else torch.from_numpy(classes),
    )

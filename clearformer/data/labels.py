"""Read labelled texts from files, and convert them to rows of tokens with their classes.

    LabelSource(path="reviews.tsv")                                         text and label, separated by a tab
    LabelSource(path="reviews.tsv.gz", text="sentence", label="label")      the same with a header line
    LabelSource(path="pairs.tsv", text=[3, 4], label=0)                     pairs of texts
    LabelSource(path="reviews.jsonl")                                       one {"text": "…", "label": "good"} per line

Files may be gzipped. Text is UTF-8, cleaned by `text.normalize.clean`. Blank lines are skipped.
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
from clearformer.data.sources import file_type, json_text, non_empty, read_cells, read_lines, read_objects, require_file
from clearformer.data.store import Ragged, gather
from clearformer.errors import DataError
from clearformer.text import Tokenizer
from clearformer.text.normalize import clean
from clearformer.wording import agree, count, listed

Column = NonNegativeInt | str
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


class LabelSource(Config):
    """The path of labelled texts, and how to read them."""

    path: Path = Field(description="path of a .tsv, .txt or .jsonl file")
    text: Column | tuple[Column, Column] | None = Field(
        None,
        description="text column, a number from 0 or a name; two columns for pairs; default: 0, or `text` in JSON",
    )
    label: Column | None = Field(
        None, description="label column, a number from 0 or a name; default: 1, or `label` in JSON"
    )

    def read(self) -> Generator[Labelled]:
        """Stream the examples in order. A wrong path or file type raises at once, a bad line when it is reached."""
        require_file(self.path)
        suffix = file_type(self.path)
        if suffix in (".tsv", ".txt"):
            return non_empty(self.path, self._read_tsv(self._columns(is_named=False)), "labelled text")
        if suffix == ".jsonl":
            columns = self._columns(is_named=True)
            if not all(map(is_name, columns)):
                raise DataError(
                    f"{self.path}: columns of .jsonl files have names, not numbers",
                    "use the names, for example --label-column label",
                )
            return non_empty(self.path, self._read_jsonl([str(column) for column in columns]), "labelled text")
        raise DataError(
            f"{self.path}: unsupported file type",
            "use a .tsv or .txt file, with tabs between columns, or a .jsonl file; each may be gzipped (.gz)",
        )

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
    """Return the columns of a .tsv file if its first line is a header, recognised by a column `label`; otherwise {}.

    The text column is `text`, `sentence`, or the pair `sentence1` and `sentence2`; otherwise the first one but `label`.
    """
    if file_type(path) not in (".tsv", ".txt") or not path.is_file():
        return {}
    with closing(read_lines(path)) as lines:
        header = next(lines, "").split("\t")
    if "label" not in header or len(header) < 2:
        return {}
    if {"sentence1", "sentence2"} <= set(header):
        return {"text": ("sentence1", "sentence2"), "label": "label"}
    preferred = [name for name in ("text", "sentence") if name in header]
    return {"text": [*preferred, *(name for name in header if name != "label")][0], "label": "label"}


def is_name(column: Column | None) -> bool:
    return isinstance(column, str)


def example(cells: Sequence[str], where: str) -> Labelled:
    *texts, label = map(clean, cells)
    if not label:
        raise DataError(f"{where}: the label is empty", "add a label, or remove the line")
    return Labelled(texts[0], texts[1] if len(texts) > 1 else None, label)


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
    def of(cls, examples: Sequence[Labelled], classes: np.ndarray, tokenizer: Tokenizer, max_tokens: int) -> Self:
        pairs = None if examples[0].pair is None else [str(example.pair) for example in examples]
        tokens, segments = tokenizer.encode_with_specials([example.text for example in examples], pairs, max_tokens)
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

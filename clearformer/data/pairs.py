"""Read sentence pairs from files, row by row, and filter out unusable pairs.

    read_pairs(Path("fra.tsv"))                                     one file, columns separated by tabs
    read_pairs(Path("fra.csv"), ("english", "french"))              a file with a header
    read_pairs((Path("train.en.gz"), Path("train.de.gz")))          two files, aligned by line
    read_pairs(Path("train.parquet"), ("en", "de"))                 any other table (see files/open.py)

A blank line is not an error but an empty pair, which `Filter` drops and counts.
"""

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import Field, NonNegativeInt

from clearformer.config import Config
from clearformer.data.files.columns import header_of_pairs, pair_columns
from clearformer.data.files.open import PAIRS, open_table, require_names
from clearformer.data.files.table import Table
from clearformer.data.files.xml_units import TranslationMemory
from clearformer.data.sentence_ends import marked
from clearformer.data.source import Source
from clearformer.data.sources import as_text, json_value, non_empty, read_lines, require_file
from clearformer.data.tally import Outcome, Tally, TooLong
from clearformer.errors import DataError
from clearformer.text.normalize import clean
from clearformer.wording import count

ALIGNED = ", or two files aligned by line: --pairs train.en,train.de"
Columns = tuple[int, int] | tuple[str, str]


class Example(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


class PairSource(Source):
    """The path of sentence pairs, and how to read them: the arguments of `read_pairs` in a recipe."""

    path: Path | tuple[Path, Path] = Field(
        description="path of a data table (.tsv, .csv, .jsonl, .parquet …), or of two line-aligned files"
    )
    columns: tuple[NonNegativeInt, NonNegativeInt] | tuple[str, str] = Field(
        (0, 1), description="source and target columns: numbers from 0, or names from the header or JSON keys"
    )

    def read(self) -> Generator[Example]:
        return read_pairs(self.path, self.columns)


def read_pairs(path: Path | tuple[Path, Path], columns: Columns = (0, 1)) -> Generator[Example]:
    """Stream the pairs of one file, or of two aligned files. The suffix determines the file type.

    A wrong path or file type raises at once, a bad row when it is reached.
    """
    if isinstance(path, tuple):
        require_file(path[0])
        require_file(path[1])
        return non_empty(path[0], read_aligned(*path))
    table = open_table(path, PAIRS, ALIGNED)
    require_names(table, columns, "--columns")
    return non_empty(path, read_rows(table, columns))


def named_pair_columns(path: Path | tuple[Path, Path]) -> Columns:
    """Return the names of the source and target columns if they are well known, otherwise (0, 1)."""
    if isinstance(path, tuple) or not path.exists():
        return 0, 1
    table = open_table(path, PAIRS, ALIGNED)
    names = table.names()
    if isinstance(table, TranslationMemory) and len(names) == 2:
        return names[0], names[1]
    return (pair_columns if table.has_names else header_of_pairs)(names) or (0, 1)


def with_task_prefix(source: str, prefix: str) -> str:
    """Put the task prefix before a source, as in a multi-task T5; a blank source stays blank."""
    return f"{prefix.strip()} {source}" if prefix and source.strip() else source


def read_aligned(source: Path, target: Path) -> Generator[Example]:
    """Pair each line of one file with the same line of the other.

    Files with different numbers of lines are an error, since any of their lines may be misaligned.
    """
    with closing(read_lines(source)) as sources, closing(read_lines(target)) as targets:
        for number, (a, b) in enumerate(zip_longest(sources, targets), 1):
            if a is None or b is None:
                n_source = number - 1 if a is None else number + sum(1 for _ in sources)
                n_target = number - 1 if b is None else number + sum(1 for _ in targets)
                raise misaligned(source, n_source, target, n_target)
            yield Example(clean(a), clean(b))


def misaligned(source: Path, n_source: int, target: Path, n_target: int) -> DataError:
    return DataError(
        f"{source} has {count(n_source, 'line')} but {target} has {n_target:,}",
        "each line of one file must be the translation of the same line of the other",
    )


def read_rows(table: Table, columns: Columns) -> Generator[Example]:
    """Stream pairs from two columns of a table; their values must be strings."""
    with closing(table.read(columns, "--columns")) as rows:
        for where, (source, target) in rows:
            yield as_pair(source, target, columns, where)


def json_pair(where: str, row: dict[str, object] | None, columns: tuple[str, str]) -> Example:
    if row is None:
        return Example("", "")
    source, target = (json_value(row, key, where, "--columns") for key in columns)
    return as_pair(source, target, columns, where)


def as_pair(source: object, target: object, columns: Columns, where: str) -> Example:
    """Return the pair, cleaned. A value that is not a string is an error."""
    return Example(clean(as_text(source, columns[0], where)), clean(as_text(target, columns[1], where)))


class Filter(Config):
    """Drops pairs with an empty side, a side that is too long, or sides of very unequal length."""

    max_chars: int = Field(2000, ge=1, description="maximum length of a side, in characters")
    max_tokens: int = Field(256, ge=1, description="maximum length of a side, in tokens without BOS and EOS")
    max_ratio: float = Field(9.0, ge=1, description="maximum ratio of the longer to the shorter side, in characters")
    too_long: TooLong = Field(
        "drop",
        description="pairs with a side that is too long: `drop` them, `cut` their sides, or `split` them at sentences, "
        "if both sides have equally many",
    )

    def outcome(self, example: Example) -> Outcome:
        shorter, longer = sorted((len(example.source), len(example.target)))
        if shorter == 0:
            return "empty"
        if longer > self.max_chars:
            return "too_long"
        return "unequal" if longer > self.max_ratio * shorter else "kept"

    def keep(self, examples: Iterator[Example], tally: Tally) -> Iterator[Example]:
        """Yield the pairs that pass, in order, and count all pairs in `tally`. Raises an error if none passes."""
        yield from self.passing(examples, tally)
        self.require_any(tally)

    def passing(self, examples: Iterable[Example], tally: Tally) -> Iterator[Example]:
        """Yield the pairs that pass, as `keep` does, but also of a part of a corpus, in which none may pass."""
        number = tally.total
        for example in examples:
            number += 1
            outcome = self.outcome(example)
            if outcome == "kept":
                tally.kept += 1
                tally.numbers.append(number)
                yield example
                continue
            if outcome == "too_long" and self.too_long != "drop" and (parts := self.shortened(example)):
                if self.too_long == "cut":
                    tally.count_cut(number)
                else:
                    tally.count_split(len(parts))
                tally.examples.note(self.too_long, number, shown(example))
                tally.kept += len(parts)
                for part in parts:
                    tally.numbers.append(number)  # in step with the pairs: the caller may pause between two parts
                    yield part
                continue
            tally.count(outcome)
            tally.examples.note(outcome, number, shown(example))

    def shortened(self, example: Example) -> list[Example]:
        """Return a pair that is cut to `max_chars`, or its sentences, that pass; [] if none does."""
        if self.too_long == "split":
            parts = split_pair(example)
        else:
            parts = [Example(*(cut_text(side, self.max_chars) for side in example))]
        return [part for part in parts if self.outcome(part) == "kept"]

    def require_any(self, tally: Tally) -> None:
        if tally.kept == 0:
            raise DataError(
                f"no pairs are left after filtering: {tally.describe()}", "check the columns, or relax [data.filter]"
            )

    def fit(self, source_lengths: np.ndarray, target_lengths: np.ndarray, tally: Tally) -> np.ndarray:
        """Return which pairs have at most `max_tokens` per side; `tally` then counts the others as too long, not kept.

        Lengths and result have shape (n,).
        """
        is_short = np.maximum(source_lengths, target_lengths) <= self.max_tokens
        n_long = len(is_short) - int(np.count_nonzero(is_short))
        tally.kept -= n_long
        tally.too_long += n_long
        return is_short


def shown(example: Example) -> str:
    """Return a pair as one text, for messages."""
    return f"{example.source} → {example.target}"


def cut_text(text: str, max_chars: int) -> str:
    """Return the beginning of a text, whole words if it has spaces."""
    if len(text) <= max_chars:
        return text
    return text[: max_chars + 1].rpartition(" ")[0].rstrip() or text[:max_chars]


def split_pair(example: Example) -> list[Example]:
    """Return the sentences of a pair, side by side; [] if there are not equally many, at least two, on both sides."""
    sources, targets = (marked(side) for side in example)
    return [Example(*pair) for pair in zip(sources, targets)] if 1 < len(sources) == len(targets) else []

"""Process a corpus of sentence pairs in blocks: in this process or, if it is large, on all cores.

    files ──read_pair_blocks──▶ raw lines ──PairParser──▶ pairs ──Filter──▶ kept pairs ──Surveyor, PairEncoder──▶ result
    this process                            workers                                                      this process

Where a line is not a row, as in .csv and .parquet files, this process parses, too, and the blocks contain pairs.
The results come in the order of the corpus and, joined, do not depend on the size of the blocks. This module does not
import torch, so that workers start quickly and need little memory.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from struct import Struct
from typing import Generic, NamedTuple, TypeVar, cast

import numpy as np

from clearformer.data.files.open import PAIRS, open_table
from clearformer.data.pairs import Example, Filter, PairSource, json_pair, misaligned, shown, with_task_prefix
from clearformer.data.sources import (
    MOST_BYTES,
    cells,
    decode_line,
    file_type,
    header_columns,
    objects,
    read_blocks,
    read_lines,
    split_lines,
)
from clearformer.data.split import place
from clearformer.data.store import Ragged, id_type
from clearformer.data.tally import Tally
from clearformer.data.workers import Workers, usable_threads
from clearformer.text import Tokenizer
from clearformer.text.normalize import clean
from clearformer.text.packed import MAX_WORDS, PackedEncoder

CHUNK = 8192  # lines per block
PLAIN = 2**23  # bytes of a block that is decoded at once
MIN_BYTES = 2**24  # minimum size of a corpus that is worth starting workers for
MAX_WORKERS = 8  # more could not be supplied by one reading process
RECORD = Struct("<dII")  # the place of a pair in [0, 1), and the number of bytes of its two sides

Result = TypeVar("Result")


LINES = (".tsv", ".txt", ".jsonl")  # file types with one row per line


class PairBlock(NamedTuple):
    """Raw lines of a corpus, of each of its files; `first` is the number of the first line."""

    first: int
    lines: tuple[list[bytes], ...]


def has_lines(source: PairSource) -> bool:
    """Whether each line of the corpus is one pair, so that workers can parse it."""
    return isinstance(source.path, tuple) or (source.path.is_file() and file_type(source.path) in LINES)


def read_pair_blocks(source: PairSource) -> Generator[PairBlock | list[Example]]:
    """Yield the lines of one file, or of two aligned files, which must have the same number of lines; or pairs."""
    first, path = 1, source.path
    if not has_lines(source):
        with closing(source.read()) as pairs:
            while block := list(islice(pairs, CHUNK)):
                yield block
        return
    if isinstance(path, Path):
        with closing(read_blocks(path, CHUNK, MOST_BYTES)) as blocks:
            for lines in blocks:
                yield PairBlock(first, (lines,))
                first += len(lines)
        return
    with closing(read_blocks(path[0], CHUNK)) as sources, closing(read_blocks(path[1], CHUNK)) as targets:
        nothing: list[bytes] = []
        for a, b in zip_longest(sources, targets, fillvalue=nothing):
            n = min(len(a), len(b))
            yield PairBlock(first, (a[:n], b[:n]))
            if len(a) != len(b):
                n_source = first - 1 + len(a) + sum(map(len, sources))
                n_target = first - 1 + len(b) + sum(map(len, targets))
                raise misaligned(path[0], n_source, path[1], n_target)
            first += n


class PairParser:
    """Parses blocks of lines into the pairs that `read_pairs` yields, and raises the same errors."""

    def __init__(self, source: PairSource) -> None:
        self.paths = source.path if isinstance(source.path, tuple) else (source.path,)
        self.type = "aligned" if len(self.paths) == 2 else file_type(self.paths[0])
        self.columns: Sequence[int | str] = source.columns
        self.has_header = self.type in (".tsv", ".txt") and isinstance(self.columns[0], str)
        if self.has_header:
            with closing(read_lines(self.paths[0])) as lines:
                header = next(lines, "").split("\t")
            self.columns = header_columns(f"{self.paths[0]}:1", header, self.columns, "--columns")

    def __call__(self, block: PairBlock | list[Example]) -> Iterator[Example]:
        if isinstance(block, list):
            return iter(block)
        path, *_ = self.paths
        if self.type in (".tsv", ".txt") and block.first > 1:
            i, j = cast(tuple[int, int], self.columns)
            if plain := plain_rows(block.lines[0], max(i, j) + 1):
                return (Example(clean(row[i]), clean(row[j])) for row in plain)
        lines, *others = (numbered(side, str(name), block.first) for side, name in zip(block.lines, self.paths))
        if self.type == "aligned":
            return (Example(clean(a), clean(b)) for (_, a), (_, b) in zip(lines, *others))
        if self.type == ".jsonl":
            keys = cast(tuple[str, str], self.columns)
            return (json_pair(where, row, keys) for where, row in objects(path, lines))
        body = islice(lines, int(self.has_header and block.first == 1), None)
        rows = cells(split_lines(path, body), cast(list[int], self.columns))
        return (Example(clean(a), clean(b)) for _, (a, b) in rows)


def plain_rows(lines: list[bytes], n_columns: int) -> list[list[str]]:
    """Return the cells of a block of lines, decoded at once; nothing if a line needs more care, or an error."""
    data = b"".join(lines)
    if len(data) > PLAIN or b"\0" in data or b"\r" in data:
        return []
    try:
        rows = [line.split("\t") for line in data.decode().removesuffix("\n").split("\n")]
    except UnicodeDecodeError:
        return []
    return rows if min(map(len, rows)) >= n_columns else []


def numbered(lines: list[bytes], name: str, first: int) -> Iterator[tuple[int, str]]:
    return ((number, decode_line(line, name, number)) for number, line in enumerate(lines, first))


Function = Callable[[list[Example], Tally], Result]
"""Computes the result of the pairs of a block. The tally has counted them as kept; the function may correct it."""


@dataclass(frozen=True)
class Work(Generic[Result]):
    """The work of a worker on a block: parse, filter, compute. Returns the counts of the block and the result."""

    parse: PairParser
    filter: Filter
    function: Function[Result]

    def __call__(self, block: PairBlock | list[Example]) -> tuple[Tally, Result]:
        tally = Tally()
        result = self.function(list(self.filter.passing(self.parse(block), tally)), tally)
        tally.next_block()
        return tally, result


def over_blocks(source: PairSource, pair_filter: Filter, function: Function[Result], tally: Tally) -> Generator[Result]:
    """Yield the result for each block of the pairs that pass the filter, in order, and count all pairs in `tally`."""
    n = n_workers(source)
    with closing(source.read()) as pairs:
        if n == 1:
            kept = pair_filter.keep(pairs, tally)
            while block := list(islice(kept, CHUNK)):
                yield function(block, tally)
                tally.next_block()
            return
        next(pairs)  # raises the errors of a wrong file type and of an empty file
    with Workers(Work(PairParser(source), pair_filter, function), n) as workers:
        for counts, result in workers.map(read_pair_blocks(source)):
            tally.add(counts)
            yield result
    pair_filter.require_any(tally)


def n_workers(source: PairSource) -> int:
    """Return the number of workers for a corpus; 1 means that this process does the work."""
    paths = source.path if isinstance(source.path, tuple) else (source.path,)
    return min(usable_threads(), MAX_WORKERS) if sum(map(n_bytes, paths)) >= MIN_BYTES else 1


def n_bytes(path: Path) -> int:
    """Return the size of a file, or of the files in a folder; 0 if there is none."""
    files = path.iterdir() if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


class SurveyedPairs(NamedTuple):
    """The number of characters in the targets of a block, and its pairs as records: RECORD, source and target."""

    n_chars: int
    records: list[bytes]


def survey_block(pairs: list[Example], tally: Tally) -> SurveyedPairs:
    return SurveyedPairs(sum(len(pair.target) for pair in pairs), [as_record(pair) for pair in pairs])


def as_record(pair: Example) -> bytes:
    source, target = pair.source.encode(), pair.target.encode()
    return RECORD.pack(place(source), len(source), len(target)) + source + target


@dataclass(frozen=True)
class Fractions:
    """The fractions of the training corpus held out for validation and test: the same sentences for every seed."""

    valid: float = 0.0
    test: float = 0.0

    def split_of(self, at: float) -> str:
        """Return the split of a source sentence, given its place in [0, 1) (see split.py)."""
        return "valid" if at < self.valid else "test" if at < self.valid + self.test else "train"


class EncodedPairs(NamedTuple):
    """The ids of the training and validation pairs of a block, source and target, and the text of held-out pairs."""

    train: tuple[Ragged, Ragged]
    valid: tuple[Ragged, Ragged]
    valid_text: list[Example]
    test_text: list[Example]


class PairEncoder:
    """Divides the pairs of a block into splits, and tokenises the training and validation pairs."""

    def __init__(
        self,
        tokenizers: Sequence[Tokenizer],
        pair_filter: Filter,
        prefix: str,
        fractions: Fractions,
        max_words: int = MAX_WORDS,
    ) -> None:
        self.filter, self.prefix, self.fractions = pair_filter, prefix, fractions
        dtype, distinct = id_type(max(tokenizer.vocab_size for tokenizer in tokenizers)), dict.fromkeys(tokenizers)
        self.encoders = [PackedEncoder(tokenizer, dtype, max_words // len(distinct)) for tokenizer in distinct]

    def __call__(self, pairs: list[Example], tally: Tally) -> EncodedPairs:
        numbers = tally.numbers
        if self.fractions == Fractions():
            return EncodedPairs(self.encode(pairs, numbers, tally), self.encode([], [], tally), [], [])
        rows: dict[str, list[int]] = {"train": [], "valid": [], "test": []}
        for i, pair in enumerate(pairs):
            rows[self.fractions.split_of(place(pair.source))].append(i)
        train, valid, test = ([pairs[i] for i in rows[name]] for name in ("train", "valid", "test"))
        train_ids = self.encode(train, [numbers[i] for i in rows["train"]], tally)
        valid_ids = self.encode(valid, [numbers[i] for i in rows["valid"]], tally)
        return EncodedPairs(train_ids, valid_ids, valid, test)

    def encode(self, pairs: list[Example], numbers: list[int], tally: Tally) -> tuple[Ragged, Ragged]:
        """Return the ids of the pairs that are short enough; others are dropped, cut or split, as the filter says."""
        rule, examples = self.filter, tally.examples
        source, target = self.tokenize(pairs)
        is_long = np.maximum(source.lengths, target.lengths) > rule.max_tokens
        if rule.too_long == "cut" and is_long.any():
            for i in np.flatnonzero(is_long):
                tally.count_cut(numbers[i])
                examples.note("cut", numbers[i], shown(pairs[i]))
            source, target = source.cut(rule.max_tokens), target.cut(rule.max_tokens)
        if rule.too_long == "split" and is_long.any():
            pairs, numbers = self.split(pairs, numbers, is_long, tally)
            source, target = self.tokenize(pairs)
        is_short = rule.fit(source.lengths, target.lengths, tally)
        for i in np.flatnonzero(~is_short):
            examples.note("too_long", numbers[i], shown(pairs[i]))
        return source.select(is_short), target.select(is_short)

    def tokenize(self, pairs: list[Example]) -> tuple[Ragged, Ragged]:
        source = Ragged(*self.encoders[0]([with_task_prefix(pair.source, self.prefix) for pair in pairs]))
        return source, Ragged(*self.encoders[-1]([pair.target for pair in pairs]))

    def split(
        self, pairs: list[Example], numbers: list[int], is_long: np.ndarray, tally: Tally
    ) -> tuple[list[Example], list[int]]:
        """Return the pairs with long ones divided into sentences where that is possible, and their numbers."""
        parts: list[tuple[int, Example]] = []
        for number, pair, too_long in zip(numbers, pairs, is_long.tolist()):
            sentences = self.filter.shortened(pair) if too_long else []
            if sentences:
                tally.count_split(len(sentences))
                tally.kept += len(sentences) - 1
                tally.examples.note("split", number, shown(pair))
            parts += [(number, part) for part in sentences or [pair]]
        return [pair for _, pair in parts], [number for number, _ in parts]


def numbering(source: PairSource) -> tuple[str, int]:
    """Return what the examples of a tally are numbered by, lines or rows, and the number of the first pair."""
    if isinstance(source.path, tuple):
        return "line", 1
    has_header = isinstance(source.columns[0], str) and not open_table(source.path, PAIRS).has_names
    return "line" if has_lines(source) else "row", 1 + has_header

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

from clearformer.data.pairs import Example, Filter, PairSource, Tally, json_pair, misaligned, with_task_prefix
from clearformer.data.sources import (
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
from clearformer.data.workers import Workers, usable_threads
from clearformer.text import Tokenizer
from clearformer.text.normalize import clean
from clearformer.text.packed import PackedEncoder

CHUNK = 8192  # lines per block
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
        with closing(read_blocks(path, CHUNK)) as blocks:
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
        lines, *others = (numbered(side, str(name), block.first) for side, name in zip(block.lines, self.paths))
        if self.type == "aligned":
            return (Example(clean(a), clean(b)) for (_, a), (_, b) in zip(lines, *others))
        if self.type == ".jsonl":
            keys = cast(tuple[str, str], self.columns)
            return (json_pair(where, row, keys) for where, row in objects(path, lines))
        body = islice(lines, int(self.has_header and block.first == 1), None)
        rows = cells(split_lines(path, body), cast(list[int], self.columns))
        return (Example(clean(a), clean(b)) for _, (a, b) in rows)


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
        return tally, self.function(list(self.filter.passing(self.parse(block), tally)), tally)


def over_blocks(source: PairSource, pair_filter: Filter, function: Function[Result], tally: Tally) -> Generator[Result]:
    """Yield the result for each block of the pairs that pass the filter, in order, and count all pairs in `tally`."""
    n = n_workers(source)
    with closing(source.read()) as pairs:
        if n == 1:
            kept = pair_filter.keep(pairs, tally)
            while block := list(islice(kept, CHUNK)):
                yield function(block, tally)
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

    def __init__(self, tokenizers: Sequence[Tokenizer], pair_filter: Filter, prefix: str, fractions: Fractions) -> None:
        self.filter, self.prefix, self.fractions = pair_filter, prefix, fractions
        dtype = id_type(max(tokenizer.vocab_size for tokenizer in tokenizers))
        self.encoders = [PackedEncoder(tokenizer, dtype) for tokenizer in dict.fromkeys(tokenizers)]

    def __call__(self, pairs: list[Example], tally: Tally) -> EncodedPairs:
        splits: dict[str, list[Example]] = {"train": [], "valid": [], "test": []}
        if self.fractions == Fractions():
            splits["train"] = pairs
        else:
            for pair in pairs:
                splits[self.fractions.split_of(place(pair.source))].append(pair)
        train, valid = (self.encode(splits[name], tally) for name in ("train", "valid"))
        return EncodedPairs(train, valid, splits["valid"], splits["test"])

    def encode(self, pairs: list[Example], tally: Tally) -> tuple[Ragged, Ragged]:
        """Return the ids of the pairs that are short enough."""
        source = Ragged(*self.encoders[0]([with_task_prefix(pair.source, self.prefix) for pair in pairs]))
        target = Ragged(*self.encoders[-1]([pair.target for pair in pairs]))
        is_short = self.filter.fit(source.lengths, target.lengths, tally)
        return source.select(is_short), target.select(is_short)

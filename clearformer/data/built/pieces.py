"""Divide a corpus into pieces of SHARD_ROWS lines, each the work of one worker.

Plain files are divided by their bytes: a worker reads its lines itself. Of compressed files and of tables such as
.parquet, this process reads the rows and sends them.
"""

from collections.abc import Generator, Iterator
from contextlib import closing
from io import BufferedReader
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clearformer.data import sources
from clearformer.data.files.compressed import ENDINGS
from clearformer.data.pair_blocks import CHUNK, PairBlock, has_lines, read_pair_blocks
from clearformer.data.pairs import PairSource, misaligned
from clearformer.data.sources import MOST_BYTES, divided, too_long

SHARD_ROWS = 16 * CHUNK
SCAN = 2**23  # bytes
MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")  # byte order marks


class Span(NamedTuple):
    """A part of a file, from one line start to another."""

    path: Path
    start: int
    stop: int


class Piece(NamedTuple):
    """The lines of one shard: where they are, or the blocks themselves. `first` is the number of the first line."""

    number: int
    first: int
    spans: tuple[Span, ...]
    given: tuple[Any, ...] = ()

    def blocks(self) -> Iterator[Any]:
        """Yield the lines in blocks, as `read_pair_blocks` does."""
        if self.given:
            yield from self.given
            return
        first, rows = self.first, zip(*map(lines_of, self.spans))
        while block := take(rows):
            yield PairBlock(first, tuple(map(list, zip(*block))))
            first += len(block)


def take(rows: Iterator[tuple[bytes, ...]]) -> list[tuple[bytes, ...]]:
    """Return the next CHUNK rows, or fewer, if they are long."""
    block, n_bytes = list[tuple[bytes, ...]](), 0
    for row in rows:
        block.append(row)
        n_bytes += sum(map(len, row))
        if len(block) == CHUNK or n_bytes >= MOST_BYTES:
            break
    return block


def lines_of(span: Span) -> Iterator[bytes]:
    with open(span.path, "rb") as file:
        file.seek(span.start)
        for lines in divided(Part(file, span.stop - span.start)):
            if len(lines[0]) >= sources.MAX_LINE:
                raise too_long(span.path)
            yield from lines


class Part:
    """The next `left` bytes of a file, as a stream."""

    def __init__(self, file: BufferedReader, left: int) -> None:
        self.file, self.left = file, left

    def read1(self, size: int) -> bytes:
        part = self.file.read1(min(size, self.left))
        self.left -= len(part)
        return part


def pair_pieces(source: PairSource) -> Generator[Piece]:
    """Yield the pieces of a corpus of pairs, in order."""
    paths = source.path if isinstance(source.path, tuple) else (source.path,)
    if has_lines(source) and all(map(is_plain, paths)):
        yield from spans_of(paths)
        return
    with closing(read_pair_blocks(source)) as blocks:
        first = 1
        for number, head in enumerate(blocks):
            given = tuple(chain([head], islice(blocks, max(0, SHARD_ROWS // CHUNK - 1))))
            yield Piece(number, first, (), given)
            first += sum(len(block.lines[0] if isinstance(block, PairBlock) else block) for block in given)


def is_plain(path: Path) -> bool:
    """Whether the bytes of a file are its lines: it is not compressed, and is UTF-8 without a byte order mark."""
    if path.suffix in ENDINGS:
        return False
    with open(path, "rb") as file:
        return not file.read(4).startswith(MARKS)


def spans_of(paths: tuple[Path, ...]) -> Generator[Piece]:
    edges = [line_edges(path) for path in paths]
    if len({n_lines for _, n_lines in edges}) > 1:
        raise misaligned(paths[0], edges[0][1], paths[1], edges[1][1])
    for number in range(len(edges[0][0]) - 1):
        spans = tuple(Span(path, *starts[number : number + 2]) for path, (starts, _) in zip(paths, edges))
        yield Piece(number, 1 + number * SHARD_ROWS, spans)


def line_edges(path: Path) -> tuple[list[int], int]:
    """Return where every SHARD_ROWS-th line starts, and the end of the file; and the number of lines."""
    starts, n_lines, at, last = [0], 0, 0, b"\n"
    with open(path, "rb") as file:
        while data := file.read(SCAN):
            ends = np.flatnonzero(np.frombuffer(data, "uint8") == 10)
            first = SHARD_ROWS - 1 - n_lines % SHARD_ROWS  # the line end after which a shard starts
            starts += (at + ends[first::SHARD_ROWS] + 1).tolist()
            n_lines, at, last = n_lines + len(ends), at + len(data), data[-1:]
    if starts[-1] < at or len(starts) == 1:
        starts.append(at)
    return starts, n_lines + (last != b"\n")

"""Stream lines, cells and JSON objects from files. All text data is read through this module.

    read_lines(path)             decoded lines
    read_cells(path, columns)    some columns of a file with tabs between columns, by number or by header name
    read_objects(path)           one JSON object per line
    read_blocks(path, n)         raw lines, n at a time, for other processes to decode

Every file may be gzipped. Text is UTF-8; callers clean it with `text.normalize.clean`. Only a line feed ends a line:
the Unicode separators that `str.splitlines` splits at occur inside real sentences and would misalign the two sides of
a corpus.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO, TypeVar, cast

from clearformer.errors import DataError, suggest
from clearformer.wording import agree, count

T = TypeVar("T")
Name = TypeVar("Name", bound=str | Path)


def read_cells(path: Path, columns: Sequence[int | str]) -> Generator[tuple[str, list[str]]]:
    """Yield the location of each line, for messages, and its cells in `columns`, which are empty for a blank line.

    Column names are looked up in the first line; if columns are numbers, the file has no header.
    """
    with closing(read_lines(path)) as file:
        lines = enumerate(file, 1)
        if any(isinstance(column, str) for column in columns):
            number, line = next(lines, (0, ""))
            if number == 0:
                return
            columns = header_columns(path, line, columns)
        yield from cells(path, lines, [int(column) for column in columns])


def header_columns(path: Path, header: str, names: Sequence[int | str]) -> list[int]:
    """Return the numbers of the columns with these names in the header line of a file."""
    columns = header.split("\t")
    for name in names:
        if name not in columns:
            raise DataError(f"{path}:1: the header has no column `{name}`", f"the columns are {', '.join(columns)}")
    return [columns.index(str(name)) for name in names]


def cells(path: Path, lines: Iterable[tuple[int, str]], columns: Sequence[int]) -> Generator[tuple[str, list[str]]]:
    """Yield the location and the cells of numbered lines, as `read_cells` does for a file."""
    needed = max(columns) + 1
    for number, line in lines:
        row = line.split("\t") if line.strip() else [""] * needed
        if len(row) < needed:
            raise DataError(
                f"{path}:{number}: {count(len(row), 'column')}, but {needed} {agree(needed, 'is', 'are')} needed",
                "separate columns by tabs, or choose other columns, counted from 0",
            )
        yield f"{path}:{number}", [row[column] for column in columns]


def read_objects(path: Path) -> Generator[tuple[str, dict[str, object] | None]]:
    """Yield the location of each line, for messages, and its JSON object, which is None for a blank line."""
    with closing(read_lines(path)) as lines:
        yield from objects(path, enumerate(lines, 1))


def objects(path: Path, lines: Iterable[tuple[int, str]]) -> Generator[tuple[str, dict[str, object] | None]]:
    """Yield the location and the JSON object of numbered lines, as `read_objects` does for a file."""
    for number, line in lines:
        where = f"{path}:{number}"
        try:
            row = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{where}: not valid JSON ({error})", "each line must be one complete JSON object"
            ) from None
        if not isinstance(row, dict) and line.strip():
            raise DataError(
                f"{where}: a JSON {type(row).__name__}, not an object", "each line must be one complete JSON object"
            )
        yield where, row


def json_text(row: dict[str, object], key: str, where: str) -> str:
    if key not in row:
        raise DataError(f"{where}: no key `{key}`", f"the keys of the object are {', '.join(row) or 'missing'}")
    value = row[key]
    if not isinstance(value, str):
        raise DataError(
            f"{where}: `{key}` is of type {type(value).__name__}, not a string", "choose a key whose values are strings"
        )
    return value


def read_lines(path: Path) -> Generator[str]:
    """Yield decoded lines without line ends (LF or CR LF); a byte order mark at the start of the file is dropped."""
    with closing(read_lines_with_ends(path)) as lines:
        for line in lines:
            yield line.removesuffix("\n").removesuffix("\r")


def read_lines_with_ends(path: Path) -> Generator[str]:
    """Yield decoded lines with their line ends; the last line may have none."""
    with closing(read_raw_lines(path)) as lines:
        for number, line in enumerate(lines, 1):
            yield decode(line, str(path), number)


def read_blocks(path: Path, n: int) -> Generator[list[bytes]]:
    """Yield the raw lines of a file, n at a time. The lines before a damaged part come before its error."""
    block: list[bytes] = []
    with closing(read_raw_lines(path)) as lines:
        try:
            for line in lines:
                block.append(line)
                if len(block) == n:
                    yield block
                    block = []
        except DataError:
            if block:
                yield block
            raise
    if block:
        yield block


def read_raw_lines(path: Path) -> Generator[bytes]:
    """Yield raw lines with their line ends, decompressed."""
    number = 0
    try:
        # In binary mode, lines end at line feeds only.
        with cast(IO[bytes], gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb")) as file:
            for line in file:
                number += 1
                yield line
    except EOFError:
        raise DataError(
            f"{path}: the compressed file is truncated after line {number:,}", "copy or download it again"
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{path} is damaged after line {number:,}, or not a gzip file ({error})", "copy or download it again"
        ) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror})", "check the file and its permissions") from None


def decode_line(line: bytes, name: str, number: int) -> str:
    """Decode one line of the file `name`, without its line end."""
    return decode(line, name, number).removesuffix("\n").removesuffix("\r")


def decode(line: bytes, name: str, number: int) -> str:
    if b"\0" in line:
        raise DataError(
            f"{name}:{number}: binary data (a NUL byte), not text",
            "if it is UTF-16 text, convert it: iconv -f UTF-16 -t UTF-8 IN > OUT",
        )
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name}:{number}: not UTF-8 (byte {error.start + 1} of the line is 0x{error.object[error.start]:02x})",
            "convert it, for example: iconv -f LATIN1 -t UTF-8 IN > OUT",
        ) from None


def require_file(path: Path) -> None:
    if path.is_dir():
        raise DataError(f"{path} is a folder, not a file", "give the path of a file inside it")
    if not path.exists():
        siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        raise DataError(
            f"{path} does not exist", suggest(path.name, siblings) if 0 < len(siblings) < 20 else "check the path"
        )


def file_type(path: Path) -> str:
    """Return the suffix of a file name, ignoring a final .gz: `.tsv` for train.tsv.gz."""
    return Path(path.name.removesuffix(".gz")).suffix


def read_each(names: Sequence[Name], read: Callable[[Name], T], broken: list[DataError] | None) -> list[tuple[Name, T]]:
    """Return each file with the result of `read`. Errors are added to the list `broken`, or raised if it is None."""
    contents = []
    for name in names:
        try:
            contents.append((name, read(name)))
        except DataError as error:
            if broken is None:
                raise
            broken.append(error)
    return contents


def evenly_spaced(items: Sequence[T], n: int) -> list[T]:
    """Return at most n evenly spaced items."""
    n = min(n, len(items))
    return [items[i * len(items) // n] for i in range(n)]


def non_empty(path: Path, examples: Generator[T], what: str = "pair") -> Generator[T]:
    """Yield the examples; raises an error if there are none."""
    with closing(examples):
        first = next(examples, None)
        if first is None:
            raise DataError(f"{path} is empty", f"it must contain at least one {what}")
        yield first
        yield from examples

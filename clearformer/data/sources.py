"""Files to lines, cells and JSON objects, streamed: what every kind of text data is read by.

    read_lines(path)             decoded lines
    read_cells(path, columns)    some columns of a table that tabs divide, by number or header name
    read_objects(path)           one JSON object a line

Every file may be gzipped. Text is UTF-8 and comes back cleaned by `text.normalize.clean`. Only a line feed ends a
line: the Unicode separators that `str.splitlines` honours occur inside real sentences and would shift one side of a
corpus against the other.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO, TypeVar, cast

from clearformer.errors import DataError, suggest

T = TypeVar("T")
Name = TypeVar("Name", bound=str | Path)


def read_cells(path: Path, columns: Sequence[int | str]) -> Generator[tuple[str, list[str]]]:
    """Where each line is, for a message, and its cells in these columns; of a blank line they are empty.

    Names are looked up in the first line; numbers mean there is no header.
    """
    with closing(read_lines(path)) as file:
        lines = enumerate(file, 1)
        if any(isinstance(column, str) for column in columns):
            number, line = next(lines, (0, ""))
            if number == 0:
                return
            header = line.split("\t")
            for name in columns:
                if name not in header:
                    raise DataError(f"{path}:1: the header has no column `{name}`", f"it has: {', '.join(header)}")
            columns = [header.index(str(name)) for name in columns]
        places = [int(column) for column in columns]
        needed = max(places) + 1
        for number, line in lines:
            cells = line.split("\t") if line.strip() else [""] * needed
            if len(cells) < needed:
                found = f"{len(cells)} column{'s' * (len(cells) > 1)}"
                raise DataError(
                    f"{path}:{number}: {found} where {needed} are needed",
                    "tabs divide columns; choose others with `columns`, counted from 0",
                )
            yield f"{path}:{number}", [cells[place] for place in places]


def read_objects(path: Path) -> Generator[tuple[str, dict[str, object] | None]]:
    """Where each line is, for a message, and the JSON object on it; None for a blank line."""
    with closing(read_lines(path)) as lines:
        for number, line in enumerate(lines, 1):
            where = f"{path}:{number}"
            try:
                row = json.loads(line) if line.strip() else None
            except (ValueError, RecursionError) as error:
                raise DataError(f"{where}: not valid JSON ({error})", "each line must be one whole object") from None
            if not isinstance(row, dict) and line.strip():
                raise DataError(
                    f"{where}: a JSON {type(row).__name__}, not an object", "each line must be one whole object"
                )
            yield where, row


def json_text(row: dict[str, object], key: str, where: str) -> str:
    if key not in row:
        raise DataError(f"{where}: no key `{key}`", f"the keys there are: {', '.join(row) or 'none'}")
    value = row[key]
    if not isinstance(value, str):
        raise DataError(
            f"{where}: `{key}` is of type {type(value).__name__}, not text", "name a key that holds strings"
        )
    return value


def read_lines(path: Path) -> Generator[str]:
    """Decoded lines without their ends (LF or CR LF); a byte order mark at the start of the file is dropped."""
    with closing(read_ended(path)) as lines:
        for line in lines:
            yield line.removesuffix("\n").removesuffix("\r")


def read_ended(path: Path) -> Generator[str]:
    """Decoded lines with their ends, which the last may lack."""
    number = 0
    try:
        # Binary files split on line feeds alone.
        with cast(IO[bytes], gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb")) as file:
            for number, line in enumerate(file, 1):
                yield decode(line, str(path), number)
    except EOFError:
        raise DataError(
            f"{path}: the compressed file is cut off after line {number:,}", "copy or download it again"
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{path}: damaged after line {number:,}, or not gzip ({error})", "copy or download it again"
        ) from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})", "check the file and its permissions") from None


def decode_line(line: bytes, name: str, number: int) -> str:
    """One line of the file called `name` as text, without its end."""
    return decode(line, name, number).removesuffix("\n").removesuffix("\r")


def decode(line: bytes, name: str, number: int) -> str:
    if b"\0" in line:
        raise DataError(
            f"{name}:{number}: binary data (a NUL byte), not text",
            "if it is UTF-16 text, convert it: iconv -f UTF-16 -t UTF-8",
        )
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name}:{number}: not UTF-8 (byte {error.start + 1} of the line is 0x{error.object[error.start]:02x})",
            "convert it, for example: iconv -f LATIN1 -t UTF-8",
        ) from None


def require_file(path: Path) -> None:
    if path.is_dir():
        raise DataError(f"{path} is a folder, not a file", "name the file inside it")
    if not path.exists():
        beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        raise DataError(
            f"{path} does not exist", suggest(path.name, beside) if 0 < len(beside) < 20 else "check the path"
        )


def read_each(names: Sequence[Name], read: Callable[[Name], T], broken: list[DataError] | None) -> list[tuple[Name, T]]:
    """Files with what `read` makes of them. One that cannot be read raises, or is left out and told in `broken`."""
    found = []
    for name in names:
        try:
            found.append((name, read(name)))
        except DataError as error:
            if broken is None:
                raise
            broken.append(error)
    return found


def evenly(every: Sequence[T], n: int) -> list[T]:
    """At most n of them, from all over."""
    n = min(n, len(every))
    return [every[i * len(every) // n] for i in range(n)]


def some(path: Path, examples: Generator[T], what: str = "pair") -> Generator[T]:
    """The examples, of which there must be at least one."""
    with closing(examples):
        first = next(examples, None)
        if first is None:
            raise DataError(f"{path} is empty", f"a corpus needs at least one {what}")
        yield first
        yield from examples

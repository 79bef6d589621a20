"""Stream lines, cells and JSON objects from text files.

    read_lines(path)             decoded lines
    read_line_parts(path)        the same with line ends, and a very long line in parts
    read_text(path)              decoded text in parts of any length
    cells(rows, columns)         some columns of rows
    objects(path, lines)         one JSON object per line
    read_blocks(path, n)         raw lines, n at a time, for other processes to decode

Files may be compressed (.gz, .zst). Text is UTF-8, or the encoding that a byte order mark declares: UTF-8, UTF-16 or
UTF-32. Callers clean it with `text.normalize.clean`. Only a line feed ends a line: the Unicode separators that
`str.splitlines` splits at occur inside real sentences and would misalign the two sides of a corpus. Tables of every
file type, which use these functions, are in files/.
"""

import codecs
import io
import json
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol, TypeVar

from clearformer.data.files.compressed import ENDINGS, Stream, check_ratio, opened
from clearformer.errors import DataError, suggest
from clearformer.wording import agree, count

MAX_LINE = 2**25  # bytes as UTF-8: a longer line is an error. As a text it has 4 times, as JSON up to 24 times as many
MOST_BYTES = 2**26  # of a block of lines
LINE_PART = 2**16  # bytes of the parts of such a line, where parts are allowed
READ = 2**18  # bytes read at a time
WIDTH = 40  # characters of a column name in a message; without a header, it is a whole text
SHOWN = 50  # columns named in a message
MAX_DEPTH = 200  # objects and arrays inside each other
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # begins with the mark of UTF-16, so it is compared first
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

T = TypeVar("T")
Name = TypeVar("Name")


def cells(
    rows: Iterable[tuple[str, list[str]]], columns: Sequence[int], advice: str = "separate columns by tabs"
) -> Generator[tuple[str, list[str]]]:
    """Yield the location of each row, for messages, and its cells in `columns`, which are empty for a blank row."""
    needed = max(columns) + 1
    for where, row in rows:
        if len(row) < needed:
            if any(cell.strip() for cell in row):
                raise DataError(
                    f"{where}: {count(len(row), 'column')}, but {needed} {agree(needed, 'is', 'are')} needed",
                    f"{advice}, or choose other columns, counted from 0",
                )
            yield where, [""] * len(columns)
        else:
            yield where, [row[column] for column in columns]


def split_lines(path: Path, lines: Iterable[tuple[int, str]]) -> Generator[tuple[str, list[str]]]:
    """Yield the location and all cells of numbered lines of a file with tabs between columns."""
    name = str(path)
    return ((f"{name}:{number}", line.split("\t")) for number, line in lines)


def header_columns(where: str, header: Sequence[str], names: Sequence[int | str], option: str = "") -> list[int]:
    """Return the numbers of the columns with these names. `option` is the command-line option that chooses columns."""
    for name in names:
        if name not in header:
            raise DataError(f"{where}: the header has no column `{name}`", list_columns(header, option))
    return [header.index(str(name)) for name in names]


def list_columns(names: Iterable[str], option: str = "", what: str = "columns are") -> str:
    """Return the hint for a column that does not exist: the names of columns, and the option that chooses them."""
    every = list(names)
    short = [name if len(name) <= WIDTH else f"{name[: WIDTH - 1]}…" for name in every[:SHOWN]]
    short += [f"… ({len(every):,} in all)"] * (len(every) > SHOWN)
    return f"the {what} {', '.join(short) or 'missing'}" + (f"; choose with {option}" if option else "")


def objects(path: Path, lines: Iterable[tuple[int, str]]) -> Generator[tuple[str, dict[str, object] | None]]:
    """Yield the location and the JSON object of numbered lines; None for a blank line."""
    name = str(path)
    for number, line in lines:
        where = f"{name}:{number}"
        try:
            row = json.loads(line) if line.strip() else None
        except RecursionError:
            raise too_deep(where) from None
        except ValueError as error:
            raise DataError(
                f"{where}: not valid JSON ({error})", "each line must be one complete JSON object"
            ) from None
        if not isinstance(row, dict) and line.strip():
            raise DataError(
                f"{where}: a JSON {type(row).__name__}, not an object", "each line must be one complete JSON object"
            )
        check_depth(row, line, where)
        yield where, row


def check_depth(value: object, text: str, where: str) -> None:
    """Raise an error if a parsed text is nested too deeply for its keys to be listed, or for it to be written."""
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return  # the usual case
    levels = [iter([value])]  # no more memory than one iterator for each
    while levels:
        for item in levels[-1]:
            if item and isinstance(item, dict | list):
                if len(levels) > MAX_DEPTH:
                    raise too_deep(where)
                levels.append(iter(item.values() if isinstance(item, dict) else item))
                break
        else:
            levels.pop()


def too_deep(where: str) -> DataError:
    message = f"{where}: too deeply nested: more than {MAX_DEPTH} objects or lists inside each other"
    return DataError(message, "write fewer levels")


def json_value(row: dict[str, object], key: str, where: str, option: str = "") -> object:
    """Return the value of a key; `translation.en` is the key `en` of the object under the key `translation`."""
    if key in row:
        return row[key]
    outer, _, inner = key.partition(".")
    nested = row.get(outer)
    if inner and isinstance(nested, dict):
        return json_value(nested, inner, where, option)
    raise DataError(f"{where}: no key `{key}`", list_columns(row, option, "keys of the object are"))


def as_text(value: object, key: int | str, where: str) -> str:
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
    name = str(path)
    with closing(read_raw_lines(path)) as lines:
        for number, line in enumerate(lines, 1):
            yield decode(line, name, number)


def read_line_parts(path: Path) -> Generator[str]:
    """Yield decoded lines with their line ends; a line of MAX_LINE or more comes in parts, cut before spaces."""
    name, number, start = str(path), 1, 0
    with closing(read_line_lists(path, at_spaces)) as lists:
        for lines in lists:
            for line in lines:
                yield decode(line, name, number, start)
                number, start = (number + 1, 0) if line.endswith(b"\n") else (number, start + len(line))


def read_blocks(path: Path, n: int, most: float = math.inf) -> Generator[list[bytes]]:
    """Yield the raw lines of a file, n at a time, or fewer, if they have `most` bytes.

    The lines before a damaged part come before its error.
    """
    block: list[bytes] = []
    n_bytes = 0
    with closing(read_line_lists(path)) as lists:
        try:
            for lines in lists:
                block += lines
                n_bytes += sum(map(len, lines))
                while len(block) >= n:
                    yield block[:n]
                    del block[:n]
                    n_bytes = sum(map(len, block))
                if n_bytes >= most:
                    yield block
                    block, n_bytes = [], 0
        except DataError:
            if block:
                yield block
            raise
    if block:
        yield block


def read_raw_lines(path: Path) -> Generator[bytes]:
    """Yield raw lines with their line ends, decompressed. Lines of UTF-16 and UTF-32 are converted to UTF-8."""
    with closing(read_line_lists(path)) as lists:
        for lines in lists:
            yield from lines


Cut = Callable[[bytes], list[bytes]]
"""Divides the beginning of a line that has reached MAX_LINE; the last part continues in what is read next."""


def nowhere(line: bytes) -> list[bytes]:
    return [line]


def at_spaces(line: bytes) -> list[bytes]:
    """Cut a line before a space near the end of every LINE_PART bytes."""
    parts, start = list[bytes](), 0
    while len(line) - start > LINE_PART:
        near = line.rfind(b" ", start + 1, start + LINE_PART)
        at = near if near > 0 else line.find(b" ", start + LINE_PART)
        if at < 0:
            break
        parts.append(line[start:at])
        start = at
    return [*parts, line[start:]]


def read_line_lists(path: Path, cut: Cut = nowhere) -> Generator[list[bytes]]:
    """Yield the raw lines of a file, as many at a time as one read returns."""
    number = 0
    with opened(path, lambda: f" after line {number:,}") as file:
        encoding = marked_encoding(file)
        with file:
            try:
                for lines in divided(file if encoding is None else Converted(file, encoding), cut):
                    if len(lines[0]) >= MAX_LINE:
                        raise too_long(f"{path}:{number + 1}")
                    check_ratio(path, file)
                    yield lines
                    number += len(lines) if lines[-1].endswith(b"\n") else 0
            except UnicodeError as error:
                raise not_decoded(path, encoding or "UTF-8", error, f" after line {number:,}") from None


class Converted:
    """A stream of another encoding, read as UTF-8, a part at a time."""

    def __init__(self, file: Stream, encoding: str) -> None:
        self.file, self.decoder = file, codecs.getincrementaldecoder(encoding)()

    def read1(self, size: int) -> bytes:
        while part := self.file.read1(size):
            if text := self.decoder.decode(part):
                return text.encode()
        return self.decoder.decode(b"", final=True).encode()


def too_long(where: str | Path) -> DataError:
    return DataError(f"{where}: a line of more than {MAX_LINE >> 20} MiB", "divide it into shorter lines")


class Readable(Protocol):
    def read1(self, size: int, /) -> bytes: ...


def divided(file: Readable, cut: Cut = nowhere) -> Iterator[list[bytes]]:
    """Divide a stream into lines, which end at line feeds only.

    `cut` divides a line that reaches MAX_LINE; if it cannot, the line is not completed.
    """
    parts, size, most = list[bytes](), 0, MAX_LINE
    while part := file.read1(READ):
        parts.append(part)
        size += len(part)
        if b"\n" in part:
            lines = io.BytesIO(b"".join(parts)).readlines()
            rest = b"" if lines[-1].endswith(b"\n") else lines.pop()
            if len(lines[0]) >= MAX_LINE:  # the read that reached its end also reached the limit
                lines[:1] = cut(lines[0])
            parts, size, most = [rest], len(rest), MAX_LINE
            yield lines
        elif size >= most:
            *begun, rest = cut(b"".join(parts))
            if begun:
                yield begun
            elif size >= MAX_LINE:
                break
            # What follows of a line that was cut is cut again and again, and held no longer than needed.
            parts, size, most = [rest], len(rest), LINE_PART if begun else min(2 * size, MAX_LINE)
    if size:
        yield [b"".join(parts)]


def marked_encoding(file: Stream) -> str | None:
    """Return the encoding that a byte order mark at the start of the file declares, or None for UTF-8."""
    start = file.peek(4)[:4]
    return next((encoding for mark, encoding in MARKS.items() if start.startswith(mark)), None)


def read_text(path: Path, size: int = 2**16) -> Generator[str]:
    """Yield the decoded text of a file in parts, without the byte order mark."""
    with opened(path) as file:
        encoding = marked_encoding(file) or "utf-8-sig"
        decoder = codecs.getincrementaldecoder(encoding)()
        try:
            while part := file.read(size):
                check_ratio(path, file)
                yield decoder.decode(part)
            decoder.decode(b"", final=True)
        except UnicodeError as error:
            raise not_decoded(path, encoding.removesuffix("-sig"), error) from None


def not_decoded(path: Path, encoding: str, error: UnicodeError, place: str = "") -> DataError:
    reason = getattr(error, "reason", str(error))
    return DataError(f"{path}: not {encoding.upper()}{place} ({reason})", "save the file as UTF-8")


def decode_line(line: bytes, name: str, number: int) -> str:
    """Decode one line of the file `name`, without its line end."""
    return decode(line, name, number).removesuffix("\n").removesuffix("\r")


def decode(line: bytes, name: str, number: int, start: int = 0) -> str:
    """Decode a line, or the part of it that begins `start` bytes after its beginning."""
    if b"\0" in line:
        raise DataError(
            f"{name}:{number}: binary data (a NUL byte), not text",
            "if it is UTF-16 text, convert it: iconv -f UTF-16 -t UTF-8 IN > OUT",
        )
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        at, byte = start + error.start + 1, error.object[error.start]
        raise DataError(
            f"{name}:{number}: not UTF-8 (byte {at} of the line is 0x{byte:02x})",
            "convert it, for example: iconv -f LATIN1 -t UTF-8 IN > OUT",
        ) from None


def require_file(path: Path, is_stream: bool = False) -> None:
    """Raise an error unless a regular file exists. With `is_stream`, a pipe or a device is as good."""
    if path.is_dir():
        raise DataError(f"{path} is a folder, not a file", "give the path of a file inside it")
    if not path.exists():
        siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        raise DataError(
            f"{path} does not exist", suggest(path.name, siblings) if 0 < len(siblings) < 20 else "check the path"
        )
    if not path.is_file() and not is_stream:
        raise DataError(
            f"{path} is not a regular file, so it may have no end and cannot be read twice",
            "write what it contains to a file first",
        )


def file_type(path: Path) -> str:
    """Return the suffix of a file name in lower case, ignoring a final .gz or .zst: `.tsv` for train.tsv.gz."""
    return Path(path.stem if path.suffix in ENDINGS else path.name).suffix.lower()


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


def non_empty(path: Path, examples: Generator[T], what: str = "pair", option: str = "") -> Generator[T]:
    """Yield the examples; raises an error if there are none. `option` is the option that takes a folder of files."""
    with closing(examples):
        first = next(examples, None)
        if first is None:
            is_filled = path.is_dir() and any(path.iterdir())
            content = f"has no file for {option}" if option and is_filled else "is empty"
            raise DataError(f"{path} {content}", f"it must contain at least one {what}")
        yield first
        yield from examples

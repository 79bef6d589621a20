"""Files to pairs of sentences, streamed line by line.

    read_pairs(Path("fra.tsv"))                                     one file, columns split by tabs
    read_pairs(Path("fra.tsv"), ("english", "french"))              the same with a header line
    read_pairs((Path("train.en.gz"), Path("train.de.gz")))          two files, aligned by line
    read_pairs(Path("train.jsonl"), ("en", "de"))                   one JSON object a line

Every file may be gzipped. Text is UTF-8 and comes back cleaned by `text.normalize.clean`. Only a line feed ends a
line: the Unicode separators that `str.splitlines` honours occur inside real sentences and would shift one side of a
corpus against the other. A wholly blank line is an empty pair, which `Filter` counts, rather than an error.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import IO, Literal, NamedTuple, TypeVar, cast

from pydantic import Field, NonNegativeInt

from clearformer.config import Config
from clearformer.errors import DataError, suggest
from clearformer.text.normalize import clean

Columns = tuple[int, int] | tuple[str, str]
Rows = list[list[int]]
T = TypeVar("T")
Name = TypeVar("Name", bound=str | Path)


class Example(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


class PairSource(Config):
    """Where pairs lie and how to read them: the arguments of `read_pairs`, as a recipe writes them."""

    path: Path | tuple[Path, Path] = Field(description="one .tsv, .txt or .jsonl file, or two line-aligned files")
    columns: tuple[NonNegativeInt, NonNegativeInt] | tuple[str, str] = Field(
        (0, 1), description="two column numbers counted from 0, or two names from the header line or the JSON keys"
    )

    def read(self) -> Generator[Example]:
        return read_pairs(self.path, self.columns)


def read_pairs(path: Path | tuple[Path, Path], columns: Columns = (0, 1)) -> Generator[Example]:
    """Stream the pairs of one file or of two aligned ones; what kind of file it is shows in its suffix.

    A wrong path or kind is refused at once, a bad line when it is reached.
    """
    if isinstance(path, tuple):
        require_file(path[0])
        require_file(path[1])
        return some(path[0], read_aligned(*path))
    require_file(path)
    kind = Path(path.name.removesuffix(".gz")).suffix
    if kind in (".tsv", ".txt"):
        return some(path, read_tsv(path, columns))
    if kind == ".jsonl" and isinstance(columns[0], str):
        return some(path, read_jsonl(path, columns))
    if kind == ".jsonl":
        raise DataError(f"{path}: JSON has named columns, not numbered ones", 'for example columns = ["en", "de"]')
    raise DataError(f"{path}: a file that ends in `{kind}` is of no known kind", "use .tsv, .txt, .jsonl or two files")


def posed(source: str, prefix: str) -> str:
    """A source with its task's name before it, as a T5 of several tasks reads it; a blank one stays blank."""
    return f"{prefix.strip()} {source}" if prefix and source.strip() else source


def read_aligned(source: Path, target: Path) -> Generator[Example]:
    """Line i of one file with line i of the other. Both must end together, else some line above may be misaligned."""
    with closing(read_lines(source)) as sources, closing(read_lines(target)) as targets:
        for number, (a, b) in enumerate(zip_longest(sources, targets), 1):
            if a is None or b is None:
                n_source = number - 1 if a is None else number + sum(1 for _ in sources)
                n_target = number - 1 if b is None else number + sum(1 for _ in targets)
                raise DataError(
                    f"{source} has {n_source:,} lines but {target} has {n_target:,}",
                    "line i of one file must translate line i of the other",
                )
            yield Example(clean(a), clean(b))


def read_tsv(path: Path, columns: Columns) -> Generator[Example]:
    """Two of the columns that tabs divide."""
    with closing(read_cells(path, columns)) as rows:
        for _, (source, target) in rows:
            yield Example(clean(source), clean(target))


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


def read_jsonl(path: Path, columns: tuple[str, str]) -> Generator[Example]:
    """Two string values of the JSON object on each line."""
    with closing(read_objects(path)) as rows:
        for where, row in rows:
            row = dict.fromkeys(columns, "") if row is None else row
            yield Example(*(clean(json_text(row, key, where)) for key in columns))


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


Verdict = Literal["kept", "empty", "too_long", "unequal"]


@dataclass
class Tally:
    """What became of the pairs that passed a `Filter`."""

    kept: int = 0
    empty: int = 0
    too_long: int = 0
    unequal: int = 0

    @property
    def total(self) -> int:
        return self.kept + self.empty + self.too_long + self.unequal

    def count(self, verdict: Verdict) -> None:
        setattr(self, verdict, getattr(self, verdict) + 1)

    def describe(self) -> str:
        """One line: "kept 28,873 of 29,000 pairs (12 empty, 3 too long, 112 unequal)"."""
        dropped = f" ({self.empty:,} empty, {self.too_long:,} too long, {self.unequal:,} unequal)"
        return f"kept {self.kept:,} of {self.total:,} pairs{dropped if self.kept < self.total else ''}"


class Filter(Config):
    """Drops the pairs that teach nothing: an empty side, a side too long to fit, sides of wildly unequal length."""

    max_chars: int = Field(2000, ge=1, description="longest side, in characters")
    max_tokens: int = Field(256, ge=1, description="longest side, in tokens, without BOS and EOS")
    max_ratio: float = Field(9.0, ge=1, description="longer side over shorter side, in characters")

    def judge(self, example: Example) -> Verdict:
        shorter, longer = sorted((len(example.source), len(example.target)))
        if shorter == 0:
            return "empty"
        if longer > self.max_chars:
            return "too_long"
        return "unequal" if longer > self.max_ratio * shorter else "kept"

    def keep(self, examples: Iterator[Example], tally: Tally) -> Iterator[Example]:
        """The pairs worth keeping, in order; `tally` is brought up to date as they pass. None at all is an error."""
        for example in examples:
            verdict = self.judge(example)
            tally.count(verdict)
            if verdict == "kept":
                yield example
        if tally.kept == 0:
            raise DataError(f"no pair is left: {tally.describe()}", "check the columns, or widen the filter")

    def fit(self, source_ids: Rows, target_ids: Rows, tally: Tally) -> tuple[Rows, Rows]:
        """The pairs that are short enough once tokenised; the others move from kept to too long in `tally`."""
        pairs = list(zip(source_ids, target_ids))
        short = [pair for pair in pairs if max(map(len, pair)) <= self.max_tokens]
        tally.kept -= len(pairs) - len(short)
        tally.too_long += len(pairs) - len(short)
        return [source for source, _ in short], [target for _, target in short]

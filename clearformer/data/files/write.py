"""Write results row by row: the columns of the input, and the new ones.

    with writing(Path("out.csv"), Layout(["text"], ["label"])) as writer:
        writer.add({"text": "Fine."}, ["good"], ["good\\t0.98"])

The ending of the name determines the file type. .csv and .tsv files have all columns as cells, .jsonl and .json files
as keys of objects. A .txt file has only the results, as the command prints them, and an .npy file only vectors. A file
is complete or absent: it is written under another name and renamed.
"""

import csv
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from clearformer.checkpoint import atomically
from clearformer.data.sources import json_value
from clearformer.errors import ConfigError, DataError

BREAKS = str.maketrans("\t\r\n", "   ")


class Layout(NamedTuple):
    """The columns of the input and the new ones; in .csv files, whether there is a header, and the separator."""

    names: Sequence[str]
    columns: Sequence[str]
    has_header: bool = True
    separator: str = ","


class RowWriter(ABC):
    """Writes rows to a file. `n_joined` counts texts whose line ends or tabs had to be written as spaces."""

    is_binary = False

    def __init__(self, file: IO[Any], layout: Layout) -> None:
        self.file, self.layout = file, layout
        self.n_rows = self.n_joined = 0

    @abstractmethod
    def add(self, row: Mapping[str, Any], values: Sequence[Any], lines: Sequence[str]) -> None:
        """Write the row of the input with the values of the new columns; `lines` are what the command prints."""

    def finish(self) -> None:
        """Write the end of the file."""
        self.file.flush()

    def on_one_line(self, text: str, keep: str = "") -> str:
        joined = text.translate({code: space for code, space in BREAKS.items() if chr(code) not in keep})
        self.n_joined += joined != text
        return joined


class LineWriter(RowWriter):
    """A .txt file with one result per line."""

    def add(self, row: Mapping[str, Any], values: Sequence[Any], lines: Sequence[str]) -> None:
        self.file.writelines(self.on_one_line(line, keep="\t") + "\n" for line in lines)


class CellWriter(RowWriter):
    """A .csv file. A cell that needs quotation marks has them."""

    def __init__(self, file: IO[Any], layout: Layout) -> None:
        super().__init__(file, layout)
        self.csv = csv.writer(file, delimiter=layout.separator, lineterminator="\n")
        if layout.has_header:
            self.write([*layout.names, *layout.columns])

    def add(self, row: Mapping[str, Any], values: Sequence[Any], lines: Sequence[str]) -> None:
        cells = [as_cell(value_in(row, name)) for name in self.layout.names]
        self.write(cells + [f"{value:.6g}" if isinstance(value, float) else as_cell(value) for value in values])

    def write(self, cells: list[str]) -> None:
        self.csv.writerow(cells)


class TabWriter(CellWriter):
    """A .tsv file, where quotation marks are ordinary characters."""

    def write(self, cells: list[str]) -> None:
        self.file.write("\t".join(map(self.on_one_line, cells)) + "\n")


class ObjectWriter(RowWriter):
    """A .jsonl file: one object per line."""

    def add(self, row: Mapping[str, Any], values: Sequence[Any], lines: Sequence[str]) -> None:
        self.file.write(self.object(row, values) + "\n")

    def object(self, row: Mapping[str, Any], values: Sequence[Any]) -> str:
        return json.dumps({**row, **dict(zip(self.layout.columns, values))}, ensure_ascii=False, default=str)


class ArrayWriter(ObjectWriter):
    """A .json file: an array of objects, one per line."""

    def add(self, row: Mapping[str, Any], values: Sequence[Any], lines: Sequence[str]) -> None:
        self.file.write((",\n" if self.n_rows else "[\n") + self.object(row, values))

    def finish(self) -> None:
        self.file.write("\n]\n" if self.n_rows else "[]\n")


class VectorWriter(RowWriter):
    """An .npy file: a float array with one vector per row. The header has the number of rows, so it is written twice.

    NumPy leaves space in it for a larger number.
    """

    is_binary = True
    width, dtype = 0, "<f4"

    def add(self, row: Mapping[str, Any], values: Sequence[Any], lines: Sequence[str]) -> None:
        (vector,) = values
        if not self.n_rows:
            self.width, self.dtype = len(vector), vector.dtype.str
            self.write_header()
        self.file.write(vector.tobytes())

    def finish(self) -> None:
        self.file.seek(0)
        self.write_header()

    def write_header(self) -> None:
        from numpy.lib.format import write_array_header_1_0

        header = {"descr": self.dtype, "fortran_order": False, "shape": (self.n_rows, self.width)}
        write_array_header_1_0(self.file, header)


WRITERS: dict[str, type[RowWriter]] = {
    ".txt": LineWriter,
    ".csv": CellWriter,
    ".tsv": TabWriter,
    ".jsonl": ObjectWriter,
    ".json": ArrayWriter,
}
VECTORS: dict[str, type[RowWriter]] = {".npy": VectorWriter, **WRITERS}


def require_writable(path: Path, types: Mapping[str, type[RowWriter]] = WRITERS, source: Path | None = None) -> None:
    """Refuse a file that cannot be written, before any work is done."""
    if path.suffix.lower() not in types:
        *most, last = types
        raise DataError(f"{path}: cannot write this file type", f"use a name that ends in {', '.join(most)} or {last}")
    if path.is_dir():
        raise DataError(f"{path} is a folder, not a file", "give the path of a file to write")
    if source is not None and path.exists() and source.exists() and path.samefile(source):
        raise ConfigError(f"--input and --out are the same file, {path}", "give another name to --out")


@contextmanager
def writing(path: Path, layout: Layout) -> Iterator[RowWriter]:
    """Yield the writer of a file, which appears when the block ends."""
    kind = VECTORS[path.suffix.lower()]
    mode: dict[str, Any] = {"mode": "wb"} if kind.is_binary else {"mode": "w", "encoding": "utf-8", "newline": ""}
    with atomically(path) as draft, open(draft, **mode) as file:
        writer = kind(file, layout)
        yield writer
        writer.finish()


def value_in(row: Mapping[str, Any], name: str) -> Any:
    """Return the value of a column; blank if this object has no such key."""
    if name in row:
        return row[name]
    try:
        return json_value(dict(row), name, "")
    except DataError:
        return ""


def as_cell(value: Any) -> str:
    """Return a value as text: lists and objects as JSON, a missing value blank."""
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, list | dict) else str(value)

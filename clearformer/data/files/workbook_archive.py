"""The ZIP archive of a workbook, measured while openpyxl reads it: nothing that the archive says of itself is trusted.

    with open_workbook(path) as book: …          openpyxl's workbook; every part of it is read through a `MeasuredPart`

openpyxl holds an XML part in memory as a whole, except that it forgets each row of a sheet once it is read, and keeps
only the text of each shared string. So what is limited is what lies between two rows or two strings, the number of
rows and strings, and the text of all strings. A second parser counts them in the bytes that openpyxl is given. XML with
a DOCTYPE, which could declare entities, is refused.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from xml.parsers import expat
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

from clearformer.data.files.xml_units import strict_parser
from clearformer.errors import DataError
from clearformer.wording import count

MAX_ROWS = 2**20  # as in Excel; a hostile file could number its first row 10**12, with empty rows before it
MAX_STRINGS = 2**21  # shared strings, which have to be held in memory
MAX_TEXT = 2**27  # bytes of all shared strings
MAX_UNIT = 2**23  # bytes of XML in a row, a shared string, or a part that has neither
MAX_ITEMS = 2**20  # elements and attributes in the same
MAX_BYTES = 2**31  # decompressed, of each part; a sheet of MAX_ROWS rows takes about 2**28
HINT = "save it as .csv"
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
UNITS = {"row": MAX_ROWS, "si": MAX_STRINGS}  # elements that openpyxl forgets when they end, and how many there may be
READ = 2**16  # bytes of a whole part that are read at a time


class MeasuredArchive(ZipFile):
    """A ZIP archive whose parts are measured. `unit` is the element that the reader of the next part forgets."""

    unit = "row"

    def __init__(self, path: Path) -> None:
        self.parts: list[MeasuredPart] = []
        super().__init__(path)

    def open(self, name: Any, *how: Any, **options: Any) -> IO[bytes]:
        info = self.getinfo(getattr(name, "filename", name))
        if info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):  # zipfile limits what these two decompress to
            raise DataError(
                f"{self.filename}, {info.filename}: a compression that workbooks do not have", "save it again"
            )
        measured: Any = MeasuredPart(
            super().open(name, *how, **options), f"{self.filename}, {info.filename}", self.unit
        )
        self.parts.append(measured)
        return measured

    def close(self) -> None:
        for part in self.parts:  # an error leaves the part open that is being read
            part.close()
        super().close()


class MeasuredPart:
    """A part of a workbook that is read as a file. Reading beyond a limit is a DataError."""

    def __init__(self, file: IO[bytes], name: str, unit: str) -> None:
        self.file, self.name, self.unit = file, name, unit
        self.tag = f"{MAIN} {unit}"
        self.depth = self.n_units = self.n_items = self.n_bytes = self.begin = 0
        self.parser: Any = strict_parser(name, namespace_separator=" ")
        self.parser.ordered_attributes = True
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end

    def read(self, n: int | None = -1) -> bytes:
        """Read n bytes, or the whole part, which is then held in memory."""
        if n is not None and n >= 0:
            return self.measure(self.file.read(n))
        self.tag = ""  # nothing is forgotten
        return b"".join(iter(lambda: self.measure(self.file.read(READ)), b""))

    def measure(self, data: bytes) -> bytes:
        self.n_bytes += len(data)
        if self.n_bytes > MAX_BYTES:
            raise self.exceeded(f"more than {MAX_BYTES >> 30} GiB when decompressed")
        if self.unit == "si" and self.n_bytes > MAX_TEXT:
            raise self.exceeded(f"more than {MAX_TEXT >> 20} MiB of text in shared strings")
        if self.parser is not None:
            try:
                self.parser.Parse(data, not data)
            except (expat.ExpatError, LookupError, ValueError):  # the latter for an unknown encoding
                self.parser = None  # openpyxl parses no further either, and says where
        if self.n_bytes - self.begin > MAX_UNIT:
            raise self.exceeded(f"{self.place} of more than {MAX_UNIT >> 20} MiB")
        return data

    def start(self, name: str, attributes: list[str]) -> None:
        self.n_items += 1 + len(attributes) // 2
        if self.n_items > MAX_ITEMS:
            raise self.exceeded(f"{self.place} of more than {count(MAX_ITEMS, 'XML element')}")
        if name == self.tag:
            self.depth += 1

    def end(self, name: str) -> None:
        if name != self.tag:
            return
        self.depth -= 1
        if self.depth == 0:
            self.n_units += 1
            if self.n_units > UNITS[self.unit]:
                what = "row" if self.unit == "row" else "shared string"
                raise self.exceeded(f"more than {count(UNITS[self.unit], what)}")
            self.begin, self.n_items = self.parser.CurrentByteIndex, 0

    @property
    def place(self) -> str:
        """What openpyxl holds in memory at this place."""
        if self.tag == "":
            return "a part"
        return f"row {self.n_units + 1:,}" if self.unit == "row" else f"shared string {self.n_units + 1:,}"

    def exceeded(self, what: str) -> DataError:
        return DataError(f"{self.name}: {what}", HINT)

    def close(self) -> None:
        self.file.close()

    def __enter__(self) -> "MeasuredPart":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def open_workbook(path: Path) -> Iterator[Any]:
    """Open a workbook for reading its sheets row by row. Raises exceptions of many types for damaged files."""
    from openpyxl.reader.excel import ExcelReader

    class Reader(ExcelReader):  # type: ignore[misc, unused-ignore]
        def read_strings(self) -> None:
            self.archive.unit = "si"
            super().read_strings()
            self.archive.unit = "row"

    with MeasuredArchive(path) as archive:
        reader = Reader(str(path), read_only=True, data_only=True, keep_links=False)
        reader.archive.close()
        reader.archive = archive
        reader.read()
        yield reader.wb

"""Excel workbooks: the rows of the first sheet of an .xlsx file, read with openpyxl.

Numbers and dates become text as Python writes them, formulas become their last values. A workbook is a ZIP archive of
XML files. Its size when decompressed is limited, since the shared strings of a workbook have to be held in memory. XML
with a DOCTYPE, which could declare entities, is refused.
"""

import warnings
import zlib
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from clearformer.data.files.table import Grid, check_cell
from clearformer.data.files.xml_units import refuse_doctype
from clearformer.errors import DataError, MachineError
from clearformer.wording import count

MAX_ROWS = 2**20  # as in Excel; a hostile file could number its first row 10**12, with empty rows before it
MAX_BYTES = 2**31  # decompressed; a sheet of Excel's maximum of 1,048,576 rows takes about 2**28


class Workbook(Grid):
    """An .xlsx file."""

    advice = "fill in the cells of the first row"

    def rows(self) -> Generator[tuple[str, list[str]]]:
        openpyxl = import_openpyxl(self.path)
        check_archive(self.path)
        with warnings.catch_warnings():  # of styles and extensions that openpyxl does not read
            warnings.simplefilter("ignore")
            book = self.attempt(lambda: openpyxl.load_workbook(self.path, read_only=True, data_only=True))
        with closing(book):
            sheet = self.attempt(lambda: book.worksheets[0])
            sheet.reset_dimensions()  # some programs write wrong ones
            rows, number, width = sheet.iter_rows(values_only=True), 0, 0
            while (row := self.attempt(lambda: next(rows, None))) is not None:
                number += 1
                where = f"{self.path}, row {number}"
                if number > MAX_ROWS:
                    raise DataError(f"{self.path}: more than {count(MAX_ROWS, 'row')}", "save it as .csv")
                cells = [check_cell("" if value is None else str(value), where) for value in row]
                width = width or len(cells)
                yield where, cells + [""] * (width - len(cells))  # empty cells at the end of a row may be missing

    def attempt(self, step: Any) -> Any:
        """Return the result of a step of openpyxl, which raises exceptions of many types for damaged files."""
        try:
            return step()
        except Exception as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise DataError(
                f"{self.path} is damaged, or not an .xlsx file ({reason})", "save it again, or save it as .csv"
            ) from None


def check_archive(path: Path) -> None:
    try:
        with ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > MAX_BYTES:
                raise DataError(
                    f"{path}: the workbook has more than {MAX_BYTES >> 30} GiB when decompressed", "save it as .csv"
                )
            for entry in archive.infolist():
                if entry.filename.endswith((".xml", ".rels")):
                    with archive.open(entry) as file:
                        refuse_doctype(f"{path}, {entry.filename}", file)
    except (BadZipFile, zlib.error, OSError, EOFError, RuntimeError, ValueError) as error:
        raise DataError(
            f"{path} is damaged, or not an .xlsx file ({error})", "save it again, or save it as .csv"
        ) from None


def import_openpyxl(path: Path) -> Any:
    try:
        import openpyxl
    except ModuleNotFoundError:
        raise MachineError(
            f"{path}: reading .xlsx files needs openpyxl, which is not installed", "pip install 'clearformer[excel]'"
        ) from None
    return openpyxl

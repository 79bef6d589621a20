"""Excel workbooks: the rows of the first sheet of an .xlsx file, read with openpyxl.

Numbers and dates become text as Python writes them, formulas become their last values. A workbook is a ZIP archive of
XML files, which is measured while it is read (see workbook_archive.py).
"""

import warnings
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from clearformer.data.files.table import Grid, check_cell
from clearformer.data.files.workbook_archive import HINT, MAX_ROWS, open_workbook
from clearformer.errors import ClearformerError, DataError, MachineError
from clearformer.wording import count

MAX_COLUMNS = 2**14  # as in Excel
MAX_CELLS = 2**26  # with empty ones, which a file need not contain: each row may begin in its last column


class Workbook(Grid):
    """An .xlsx file."""

    advice = "fill in the cells of the first row"

    def rows(self) -> Generator[tuple[str, list[str]]]:
        import_openpyxl(self.path)
        with ExitStack() as stack:
            with warnings.catch_warnings():  # of styles and extensions that openpyxl does not read
                warnings.simplefilter("ignore")
                book = self.attempt(lambda: stack.enter_context(open_workbook(self.path)))
            sheet = self.attempt(lambda: book.worksheets[0])
            sheet.reset_dimensions()  # some programs write wrong ones
            rows, number, width, n_cells = sheet.iter_rows(values_only=True), 0, 0, 0
            while (row := self.attempt(lambda: next(rows, None))) is not None:
                number, n_cells = number + 1, n_cells + len(row)
                where = f"{self.path}, row {number}"
                if number > MAX_ROWS:
                    raise DataError(f"{self.path}: more than {count(MAX_ROWS, 'row')}", HINT)
                if len(row) > MAX_COLUMNS:
                    raise DataError(f"{where}: more than {count(MAX_COLUMNS, 'column')}", HINT)
                if n_cells > MAX_CELLS:
                    raise DataError(f"{where}: more than {count(MAX_CELLS, 'cell')} up to here, empty ones too", HINT)
                cells = [check_cell("" if value is None else str(value), where) for value in row]
                width = width or len(cells)
                yield where, cells + [""] * (width - len(cells))  # empty cells at the end of a row may be missing

    def attempt(self, step: Any) -> Any:
        """Return the result of a step of openpyxl, which raises exceptions of many types for damaged files."""
        try:
            return step()
        except ClearformerError:
            raise
        except Exception as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise DataError(
                f"{self.path} is damaged, or not an .xlsx file ({reason})", "save it again, or save it as .csv"
            ) from None


def import_openpyxl(path: Path) -> Any:
    try:
        import openpyxl
    except ModuleNotFoundError:
        raise MachineError(
            f"{path}: reading .xlsx files needs openpyxl, which is not installed", "pip install 'clearformer[excel]'"
        ) from None
    return openpyxl

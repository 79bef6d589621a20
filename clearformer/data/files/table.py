"""A data table: a file, or a folder, whose rows are read one at a time. Each file type has a subclass of Table.

    table.names()               ["en", "de"]: the columns; in files without fixed names, the cells of the first row
    table.read(["en", "de"])    ("pairs.csv, row 2", ["a dog", "ein Hund"]), ("pairs.csv, row 3", …), …

Rows are streamed: no file is held in memory as a whole.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

from clearformer.data.sources import cells, header_columns
from clearformer.errors import DataError
from clearformer.wording import agree, count, listed

Column = int | str
MAX_CELL = 2**25  # characters, of up to 4 bytes: a longer cell is an error, so that no file can fill the memory
MAX_COLUMNS = 2**14  # as in Excel


class Table(ABC):
    """The rows of a file. The constructor does not read it."""

    has_names: ClassVar[bool] = True
    """Whether columns always have names. If not, they have numbers, or names in the first row, the header."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of the columns; in a table that may have no header, the cells of the first row."""

    @abstractmethod
    def read(self, columns: Sequence[Column], option: str = "") -> Generator[tuple[str, list[Any]]]:
        """Yield the location of each row, for messages, and its values in `columns`. A blank row has only "".

        `option` is the command-line option that chooses columns, for the hint of an error.
        """

    def describe(self, columns: Sequence[Column]) -> str:
        """Describe the columns that were recognised: "pairs.jsonl: using columns en and de"."""
        return f"{self.path}: using {agree(len(columns), 'column', 'columns')} {listed(columns)}"


class Grid(Table):
    """A table whose columns have numbers. If columns are chosen by name, the first row is a header."""

    has_names = False
    advice: ClassVar[str] = "separate columns by tabs"
    first_row: ClassVar[str] = "first row"

    @abstractmethod
    def rows(self) -> Generator[tuple[str, list[str]]]:
        """Yield the location and all cells of each row."""

    def names(self) -> list[str]:
        with closing(self.rows()) as rows:
            where, first = next(rows, ("", []))
        if len(first) > MAX_COLUMNS:
            raise DataError(
                f"{where}: {count(len(first), 'column')}, more than {MAX_COLUMNS:,}",
                "keep the columns that are needed",
            )
        return first

    def read(self, columns: Sequence[Column], option: str = "") -> Generator[tuple[str, list[Any]]]:
        with closing(self.rows()) as rows:
            if any(isinstance(column, str) for column in columns):
                header = next(rows, None)
                if header is None:
                    return
                columns = header_columns(*header, columns, option)
            yield from cells(rows, [int(column) for column in columns], self.advice)

    def describe(self, columns: Sequence[Column]) -> str:
        using = f"using {agree(len(columns), 'column', 'columns')} {listed(columns)}"
        return f"{self.path}: the {self.first_row} is a header; {using}"


def flat_keys(row: Mapping[str, object]) -> list[str]:
    """Return the keys of a JSON object; a key of a nested object has its path: `translation.en`."""
    names, n_chars = list[str](), 0
    for key, value in row.items():
        for name in (f"{key}.{inner}" for inner in flat_keys(value)) if isinstance(value, dict) else [key]:
            names.append(name)
            n_chars += len(name)
            if n_chars > MAX_CELL:  # a long key is part of the name of every key inside it
                raise DataError(
                    f"{key[:40]!r}… is a key of an object whose keys have more than {MAX_CELL >> 20} Mi characters",
                    "write objects with shorter keys",
                )
    return names


def check_cell(text: str, where: str) -> str:
    if len(text) > MAX_CELL:
        raise DataError(f"{where}: a cell of more than {MAX_CELL >> 20} Mi characters", "divide it into several rows")
    return text

"""Read all columns of a file, row by row, and the column, or the two columns, with the texts of each row.

    records = open_records(Path("reviews.csv"))        the header and the column of the texts are recognised
    records.names                                      ["id", "text"]
    records.read()                                     Record({"id": "7", "text": "Fine."}, ("Fine.",)), …

A file that is no data table, by its file type, is plain text: each line is a row. Rows are streamed.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from clearformer.data.files.columnar import is_dataset
from clearformer.data.files.columns import TEXT_PAIRS, TEXTS, first_of
from clearformer.data.files.delimited import CommaSeparated, first_lines, separator_of
from clearformer.data.files.json_rows import JsonTable
from clearformer.data.files.open import PAIRS, open_table
from clearformer.data.files.table import Column, Grid, Table, flat_keys
from clearformer.data.sources import (
    as_text,
    file_type,
    json_value,
    list_columns,
    read_lines,
    read_lines_with_ends,
    require_file,
)
from clearformer.errors import DataError
from clearformer.wording import count

OPTION = "--column NAME"
INPUTS = ("text", "source", "sentence", "prompt", "src", "input", "original", *TEXTS)  # columns of texts, by preference
FILES = ("image", "path", "file", "file_name", "filename")  # columns of image files
ARRAYS = ("idx3-ubyte", ".npz", ".npy")  # files of many images, or of vectors
CHUNK = 256  # rows that are computed at a time
MAX_TEXT = 2**23  # characters of a text: a book has a million
SAMPLE = 100  # rows in which the type of a column is looked for


class Record(NamedTuple):
    """A row: all its columns, and its text, or its two texts."""

    row: dict[str, Any]
    texts: tuple[str, ...]


class Choice(NamedTuple):
    """The columns with the texts, and the names of all columns. `is_recognised` if the user did not choose."""

    names: list[str]
    columns: list[str]
    has_header: bool = True
    is_recognised: bool = False


class Records(ABC):
    """The rows of a file. `n_rows` is known after `scan`; `message` says what was recognised, if anything was."""

    names: list[str]
    has_header = True
    """Whether the columns have names; if not, `names` are only placeholders."""
    separator = ","
    message: str | None = None
    n_rows: int | None = None
    n_columns = 1
    """The number of columns with texts."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def read(self) -> Generator[Record]:
        """Yield the rows from the beginning of the file."""

    def chunks(self) -> Generator[list[Record]]:
        """Yield the rows in lists that are computed at a time."""
        with closing(self.read()) as records:
            while chunk := list(islice(records, CHUNK)):
                require_short(text for record in chunk for text in record.texts)
                yield chunk

    def scan(self) -> None:
        """Read the file once, to count its rows. An error in a row is reported now rather than hours later."""
        if self.path.is_dir() or self.path.is_file():  # a pipe can be read only once
            with closing(self.read()) as records:
                self.n_rows = sum(1 for _ in records)


class Lines(Records):
    """Plain text: each line is a row with one column, `name`."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path)
        self.names = [name]

    def read(self) -> Generator[Record]:
        with closing(read_lines(self.path)) as lines:
            for line in lines:
                yield Record({self.names[0]: line}, (line,))


class TableRecords(Records):
    """The rows of a data table."""

    def __init__(self, table: Table, choice: Choice) -> None:
        super().__init__(table.path)
        self.table, self.choice = table, choice
        self.names, self.has_header, self.n_columns = choice.names, choice.has_header, len(choice.columns)
        if choice.is_recognised:
            self.message = self.describe()
        if isinstance(table, CommaSeparated):
            with closing(read_lines_with_ends(table.path)) as lines:
                self.separator = separator_of(first_lines(lines))

    def describe(self) -> str:
        if not self.has_header:
            return f"{self.path}: no header; using column {', '.join(map(self.number, self.choice.columns))}"
        return self.table.describe(self.choice.columns)

    def number(self, name: str) -> str:
        return str(self.names.index(name))

    def read(self) -> Generator[Record]:
        columns = self.choice.columns
        with closing(self.rows()) as rows:
            for where, row in rows:
                yield Record(row, tuple(text_of(row, column, where) for column in columns))

    def rows(self) -> Generator[tuple[str, dict[str, Any]]]:
        with closing(self.table.read(self.names)) as rows:
            for where, values in rows:
                yield where, dict(zip(self.names, values))


class GridRecords(TableRecords):
    """Rows of cells."""

    table: Grid

    def rows(self) -> Generator[tuple[str, dict[str, Any]]]:
        with closing(self.table.rows()) as rows:
            for where, row in islice(rows, int(self.has_header), None):
                yield where, dict(zip(self.names, self.checked(where, row)))

    def checked(self, where: str, row: list[str]) -> list[str]:
        """Return the cells of a row; only a blank row may have fewer than the first one, only blank ones come after."""
        n, width = len(row), len(self.names)
        if not any(cell.strip() for cell in row):
            return [""] * width
        if n < width or any(cell.strip() for cell in row[width:]):
            quotes = "; write a cell that contains a separator in quotation marks"
            raise DataError(
                f"{where}: {count(n, 'column')}, but the first row has {width:,}",
                self.table.advice + (quotes if isinstance(self.table, CommaSeparated) else ""),
            )
        return row


class JsonRecords(TableRecords):
    """Objects, which stay as they are. They may have different keys: `names` has all of them after `scan`."""

    table: JsonTable

    def rows(self) -> Generator[tuple[str, dict[str, Any]]]:
        with closing(self.table.rows()) as rows:
            yield from ((where, row) for where, row in rows if row is not None)

    def scan(self) -> None:
        names = dict.fromkeys(self.names)
        self.n_rows = 0
        with closing(self.read()) as records:
            for record in records:
                self.n_rows += 1
                names.update(dict.fromkeys(flat_keys(record.row)))
        self.names = list(names)


def require_short(texts: Iterable[str]) -> None:
    """Refuse a text that a tokenizer would read for minutes, only for a model to cut it."""
    if (longest := max(texts, key=len, default="")) and len(longest) > MAX_TEXT:
        raise DataError(
            f"{longest[:40]!r}… has {count(len(longest), 'character')}, more than {MAX_TEXT:,}",
            "divide it into shorter texts",
        )


STREAMS = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")  # what a shell passes: --input /dev/stdin, --input <(command)


def open_records(
    path: Path,
    column: str | None = None,
    is_pair: bool = False,
    wanted: Sequence[str] = INPUTS,
    name: str = "text",
) -> Records:
    """Open a file. `column` is the column of the texts, or two with a comma; None means that it is recognised.

    `is_pair` asks for two columns, `wanted` are names to recognise, `name` is the column of plain text.
    """
    if not is_dataset(path):
        require_file(path, is_stream=str(path).startswith(STREAMS) and not path.suffix)
    if file_type(path) == ".conll":
        raise DataError(
            f"{path} contains labelled words, not texts",
            "write one sentence per line in a .txt file; evaluate reads .conll files, with --labels",
        )
    if path.name.removesuffix(".gz").endswith(ARRAYS):
        raise DataError(f"{path}: unsupported file type", "give plain text, one text per line, or a data table")
    if not is_dataset(path) and file_type(path) not in (PAIRS.keys() - {".txt"}):
        if column is not None:
            raise DataError(f"{path} is plain text, which has no columns", "remove --column")
        return Lines(path, name)
    table = open_table(path, PAIRS)
    choice = given_columns(table, column) if column is not None else recognised_columns(table, is_pair, wanted, name)
    if isinstance(table, Grid):
        return GridRecords(table, choice)
    return JsonRecords(table, choice) if isinstance(table, JsonTable) else TableRecords(table, choice)


def given_columns(table: Table, text: str) -> Choice:
    """Return the columns that a user gave: one or two, each a name, or a number in a table without a header."""
    names = table.names()
    if not names:
        return Choice([text], [text])
    parts: list[Column] = [text] if text in names else [part.strip() for part in text.split(",")]
    if not table.has_names and all(str(part).isdecimal() for part in parts):
        parts = [int(part) for part in parts]
    if len(parts) > 2:
        raise DataError(f"--column {text}: expected one column or two", list_columns(names, OPTION))
    if all(isinstance(part, int) for part in parts):
        if max(int(part) for part in parts) >= len(names):
            raise DataError(f"{table.path}: no column {text}; columns count from 0", list_columns(names, OPTION))
        numbered = unnamed(len(names))
        return Choice(numbered, [numbered[int(part)] for part in parts], has_header=False)
    unique = distinct(names)
    for part in parts:
        if part not in names:
            raise DataError(f"{table.path}: no column `{part}`", list_columns(names, OPTION))
    return Choice(unique, [unique[names.index(str(part))] for part in parts])


def recognised_columns(table: Table, is_pair: bool, wanted: Sequence[str], name: str) -> Choice:
    """Return the columns of the texts: well-known names, or the only column that contains texts."""
    names = table.names()
    unique, by_name = distinct(names), {cell.strip().lower(): i for i, cell in reversed(list(enumerate(names)))}
    if not names:
        return Choice([name], [name])
    if is_pair:
        pair = next((pair for pair in TEXT_PAIRS if by_name.keys() >= {*pair}), None)
        if pair is None:
            raise DataError(
                f"{table.path}: which columns contain the two texts of a pair?", list_columns(names, "--column A,B")
            )
        return Choice(unique, [unique[by_name[key]] for key in pair], is_recognised=True)
    known = first_of(wanted, {key: unique[i] for key, i in by_name.items()})
    if known is not None:
        return Choice(unique, [known], is_recognised=True)
    if len(names) == 1:
        return Choice(unique, unique, is_recognised=True) if table.has_names else Choice([name], [name], False, True)
    sample = sample_columns(table, len(names))
    texts = [i for i, values in enumerate(sample) if are_texts(values)]
    if len(texts) != 1:
        raise DataError(f"{table.path}: which column contains the texts?", list_columns(names, OPTION))
    if table.has_names:
        return Choice(unique, [unique[texts[0]]], is_recognised=True)
    has_header = any(are_numbers(values) and not are_numbers([cell]) for cell, values in zip(names, sample))
    unique = unique if has_header else unnamed(len(names))
    return Choice(unique, [unique[texts[0]]], has_header, is_recognised=True)


def sample_columns(table: Table, width: int) -> list[list[Any]]:
    """Return the values of the first rows by column, without the row that may be a header."""
    if isinstance(table, JsonTable):
        with closing(table.rows()) as objects:
            first = [row or {} for _, row in islice(objects, SAMPLE)]
        return [[row.get(name, "") for row in first] for name in table.names()]
    columns: Sequence[Column] = table.names() if table.has_names else range(width)
    with closing(table.read(columns)) as rows:
        values = [row for _, row in islice(rows, int(not table.has_names), SAMPLE)]
    return [[row[i] for row in values] for i in range(width)]


def are_texts(values: Sequence[Any]) -> bool:
    """Whether most of the values that are not blank have several words."""
    filled = [value for value in values if str(value).strip()]
    texts = [text for text in filled if isinstance(text, str) and sum(map(has_letter, text.split())) > 1]
    return len(texts) > len(filled) / 2


def has_letter(word: str) -> bool:
    return any(map(str.isalpha, word))


def are_numbers(values: Sequence[Any]) -> bool:
    """Whether all values that are not blank are numbers, and there is one."""
    try:
        return [float(value) for value in values if str(value).strip()] != []
    except (TypeError, ValueError):
        return False


def text_of(row: dict[str, Any], column: str, where: str) -> str:
    """Return the text in a column of a row; a missing value is blank."""
    value = row[column] if column in row else json_value(row, column, where, OPTION)
    return "" if value is None else as_text(value, column, where)


def distinct(names: Sequence[str]) -> list[str]:
    """Return names without repetitions: a blank one becomes `column_2`, a second `score` becomes `score_2`."""
    result, last = dict[str, None](), dict[str, int]()
    for i, cell in enumerate(names):
        base = cell if cell.strip() else f"column_{i}"
        name, n = base, last.get(base, 1)
        while name in result:
            n += 1
            name = f"{base}_{n}"
        result[name] = None
        last[base] = n
    return list(result)


def unnamed(width: int) -> list[str]:
    return [f"column_{i}" for i in range(width)]


def free_names(columns: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Return names for new columns beside others: `model_label` if there is a `label` already."""
    result = []
    for column in columns:
        while column in taken:
            column = f"model_{column}"
        result.append(column)
    return result

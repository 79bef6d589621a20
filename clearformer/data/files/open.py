"""Open a table by its file type, which the ending of its name determines.

    open_table(Path("pairs.csv.gz"))       a Table: its column names and its rows
    open_table(Path("memory.tmx"), PAIRS)  the same, also for file types that contain nothing but pairs

Every task that reads rows reads them through this function.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from clearformer.data.files.columnar import Parquet, SavedDataset, is_dataset, require_one_split
from clearformer.data.files.compressed import ENDINGS
from clearformer.data.files.delimited import CommaSeparated, TabSeparated
from clearformer.data.files.json_rows import JsonArray, JsonLines
from clearformer.data.files.table import Table
from clearformer.data.files.workbook import Workbook
from clearformer.data.files.xml_units import TranslationMemory, Xliff
from clearformer.data.objects.staging import TITLES, titled
from clearformer.data.sources import file_type, list_columns, require_file
from clearformer.errors import DataError

TABLES: dict[str, type[Table]] = {
    ".csv": CommaSeparated,
    ".tsv": TabSeparated,
    ".txt": TabSeparated,
    ".jsonl": JsonLines,
    ".json": JsonArray,
    ".parquet": Parquet,
    ".xlsx": Workbook,
}
PAIRS: dict[str, type[Table]] = TABLES | {".tmx": TranslationMemory, ".xliff": Xliff, ".xlf": Xliff}
BINARY = (".parquet", ".xlsx")  # file types that are compressed inside, never outside


def open_table(path: Path, types: Mapping[str, type[Table]] = TABLES, also: str = "") -> Table:
    """Return the table in a file, or in a folder saved by `datasets`. Nothing is read yet.

    A missing file and an unsupported file type are errors. `also` lists what else the caller accepts, for the hint.
    """
    if is_dataset(path):
        require_one_split(path)
        return SavedDataset(path)
    require_file(path)
    suffix = file_type(path)
    if suffix not in types or (suffix in BINARY and path.suffix in ENDINGS):
        raise unsupported(path, types, also)
    return types[suffix](path)


def unsupported(path: Path, types: Mapping[str, type[Table]], also: str = "") -> DataError:
    *most, last = types
    return DataError(
        f"{path}: unsupported file type",
        f"use a {', '.join(most)} or {last} file, or a folder saved by the library datasets{also}; "
        f"text files may be compressed ({' or '.join(ENDINGS)})",
    )


def is_table(path: Path) -> bool:
    """Whether the file exists and is a table, by its file type; a .txt file is not, since it may be plain text."""
    return is_dataset(path) or (path.is_file() and file_type(path) in TABLES and file_type(path) != ".txt")


def require_names(table: Table, columns: Sequence[object], option: str) -> None:
    """Refuse numbers for columns that always have names."""
    if table.has_names and not all(isinstance(column, str) for column in columns):
        is_object = table.path in TITLES
        what = "a saved dataset" if is_dataset(table.path) else f"{file_type(table.path)} files"
        raise DataError(
            f"{table.path}: the names of the columns are not recognised"
            if is_object
            else f"{table.path}: columns of {what} have names, not numbers",
            list_columns(table.names(), option),
        )


def describe_columns(path: Path, columns: Iterable[object]) -> str:
    """Describe the columns of a table that were chosen by their names, for the user to check."""
    names = [name for column in columns for name in (column if isinstance(column, tuple) else (column,))]
    return titled(open_table(path, PAIRS).describe(names))

"""Tables in the formats of Apache Arrow: .parquet files, and folders saved by the library `datasets`.

`Dataset.save_to_disk("reviews")` writes Arrow IPC files and, in state.json, their names. They are read with pyarrow;
the library `datasets` is not used, and a script in the folder is never run.

Fields of a struct are columns with their path as the name, such as `translation.en`. Numbers in a column that is
declared as a `ClassLabel` become the names of their classes.

Some kilobytes can stand for gigabytes: pages of Parquet files are measured before they are decompressed (see
pages.py), Arrow files must not be compressed, and the values of a row are limited (see values.py).
"""

import json
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

from clearformer.data.files.messages import refuse_compressed
from clearformer.data.files.pages import measure
from clearformer.data.files.table import Column, Table, check_cell
from clearformer.data.files.values import column_values
from clearformer.data.sources import list_columns
from clearformer.errors import DataError, MachineError
from clearformer.small_files import read_json
from clearformer.wording import count

ROWS = 256
MAX_ROWS = 2**30
STATE, SPLITS = "state.json", "dataset_dict.json"


class Columnar(Table):
    """A table that is stored by columns."""

    n_rows = ROWS
    """Rows converted at a time."""

    @abstractmethod
    def open(self) -> Any:
        """Return a context manager: the schema, and a function of column names that yields record batches."""

    def names(self) -> list[str]:
        with self.reading() as (schema, _):
            return flat_fields(schema)

    def read(self, columns: Sequence[Column], option: str = "") -> Generator[tuple[str, list[Any]]]:
        keys = [str(column) for column in columns]
        with self.reading() as (schema, batches):
            known = flat_fields(schema)
            for key in keys:
                if key not in known:
                    raise DataError(f"{self.path}: no column `{key}`", list_columns(known, option))
            classes = [class_names(schema, key) for key in keys]
            number = 0
            with closing(batches(keys)) as parts:
                for part in parts:
                    for values in zip(*(column_values(part, key, self.path) for key in keys)):
                        number += 1
                        where = f"{self.path}, row {number}"
                        yield where, [as_cell(value, names, where) for value, names in zip(values, classes)]

    @contextmanager
    def reading(self) -> Iterator[tuple[Any, Callable[[list[str]], Generator[Any]]]]:
        arrow = import_pyarrow(self.path)
        try:
            with self.open() as (schema, batches):
                yield schema, lambda columns: limited(self.path, batches(columns))
        except (arrow.ArrowException, OSError, ValueError, KeyError, OverflowError) as error:
            reason = str(error).partition("\n")[0]
            raise DataError(f"{self.path} is damaged ({reason})", "write it again, or download it again") from None


class Parquet(Columnar):
    """A .parquet file."""

    @contextmanager
    def open(self) -> Iterator[tuple[Any, Callable[[list[str]], Generator[Any]]]]:
        from pyarrow import parquet

        with parquet.ParquetFile(self.path) as file:

            def batches(columns: list[str]) -> Generator[Any]:
                if file.metadata.num_rows > MAX_ROWS:
                    raise too_many_rows(self.path)
                need = measure(self.path, file.metadata, columns, self.n_rows)
                with parquet.ParquetFile(
                    self.path, metadata=file.metadata, read_dictionary=need.dictionaries
                ) as measured:
                    groups = range(file.metadata.num_row_groups)  # one at a time: each has its dictionaries
                    for some in [[group] for group in groups] if need.dictionaries else [[*groups]]:
                        yield from measured.iter_batches(need.n_rows, columns=columns, row_groups=some)

            yield file.schema_arrow, batches


class SavedDataset(Columnar):
    """A folder that `Dataset.save_to_disk` wrote."""

    @contextmanager
    def open(self) -> Iterator[tuple[Any, Callable[[list[str]], Generator[Any]]]]:
        import pyarrow

        files = data_files(self.path)
        with pyarrow.memory_map(str(files[0])) as source, pyarrow.ipc.open_stream(source) as reader:
            schema = reader.schema

        def batches(columns: list[str]) -> Generator[Any]:
            for file in files:
                refuse_compressed(file)
                with pyarrow.memory_map(str(file)) as source, pyarrow.ipc.open_stream(source) as reader:
                    for batch in reader:
                        if len(batch) > MAX_ROWS:
                            raise too_many_rows(self.path)
                        chosen = batch.select(list(dict.fromkeys(key.partition(".")[0] for key in columns)))
                        chosen.validate(full=True)  # a damaged file could refer to memory outside it
                        yield from (chosen.slice(i, self.n_rows) for i in range(0, len(chosen), self.n_rows))

        yield schema, batches


def limited(path: Path, parts: Generator[Any]) -> Generator[Any]:
    """Yield record batches. A file may declare any number of rows that take no space, such as missing values."""
    n_rows = 0
    with closing(parts):
        for part in parts:
            n_rows += len(part)
            if n_rows > MAX_ROWS:
                raise too_many_rows(path)
            yield part


def too_many_rows(path: Path) -> DataError:
    return DataError(f"{path}: more than {count(MAX_ROWS, 'row')}", "divide it into several files")


def is_dataset(path: Path) -> bool:
    """Whether a folder is a dataset, or several splits of one, saved by the library `datasets`."""
    return any((path / name).is_file() for name in (STATE, SPLITS))


def require_one_split(path: Path) -> None:
    """Refuse a folder of several splits: which of them is meant is not clear."""
    if (path / SPLITS).is_file():
        splits = sorted(str(entry.parent) for entry in path.glob(f"*/{STATE}"))
        raise DataError(f"{path} contains several splits of a dataset", f"give one of them: {', '.join(splits)}")


def data_files(path: Path) -> list[Path]:
    """Return the Arrow files of a saved dataset, which are inside its folder."""
    try:
        state = read_json(path / STATE)
        names = [str(entry["filename"]) for entry in state["_data_files"]]
    except (OSError, ValueError, TypeError, KeyError):
        names = []
    if not names or any(Path(name).name != name for name in names):
        raise DataError(f"{path / STATE} does not list the files of the dataset", "write it again with save_to_disk")
    return [path / name for name in names]


def flat_fields(fields: Any) -> list[str]:
    """Return the names of the columns of a schema; fields of a struct have their path as the name."""
    names = []
    for field in fields:
        inner = flat_fields(field.type) if is_struct(field.type) else []
        names += [f"{field.name}.{name}" for name in inner] or [field.name]
    return names


def is_struct(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_struct(kind))


def class_names(schema: Any, key: str) -> list[str] | None:
    """Return the names of the classes if `datasets` declared the column, or the items of its lists, as classes."""
    try:
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
        feature = reduce(lambda fields, name: fields[name], key.split("."), features)
        while "feature" in feature:  # the type of the items of a list
            feature = feature["feature"]
        return list(map(str, feature["names"])) if feature["_type"] == "ClassLabel" else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def as_cell(value: Any, names: list[str] | None, where: str) -> Any:
    """Return a value with classes by name; a missing value is an empty text."""
    if value is None:
        return ""
    if isinstance(value, list):
        return [as_cell(item, names, where) for item in value]
    if names is not None and isinstance(value, int):
        return names[value] if 0 <= value < len(names) else ""
    return check_cell(value, where) if isinstance(value, str) else value


def import_pyarrow(path: Path) -> Any:
    try:
        import pyarrow
    except ModuleNotFoundError:
        raise MachineError(
            f"{path}: reading {path.suffix or 'saved dataset'} files needs pyarrow, which is not installed",
            "pip install 'clearformer[parquet]'",
        ) from None
    return pyarrow

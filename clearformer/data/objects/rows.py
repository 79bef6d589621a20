"""Recognise Python objects that contain rows, and iterate over the rows.

    open_rows([("a dog", "ein Hund"), …])            tuples
    open_rows([{"en": "a dog", "de": "ein Hund"}])   dictionaries, with names of columns
    open_rows(frame)                                 a DataFrame of pandas or polars, or a table of pyarrow
    open_rows({"en": [...], "de": [...]})            a dictionary of columns
    open_rows(dataset)                               a Dataset of the library datasets, or of torch
    open_rows(rows for rows in …)                    any other iterable, which is read once

Objects are recognised by their attributes: none of these libraries is imported here.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from clearformer.errors import DataError
from clearformer.wording import count, listed

LIBRARIES = ("datasets", "numpy", "pandas", "polars", "pyarrow", "torch", "torchvision")
ACCEPTED = (
    "a path, a list of tuples or dictionaries, an iterator, a DataFrame (pandas or polars), a dictionary of columns, "
    "or a Dataset (datasets or torch)"
)


@dataclass
class Rows:
    """The rows of an object, not read yet. `kind` names the object in messages: "a list"."""

    kind: str
    rows: Iterator[Any]
    classes: dict[str, list[str]] = field(default_factory=dict)
    """The names of classes in columns that number them from 0; the name "" stands for every column."""


def open_rows(value: Any, keyword: str) -> Rows:
    """Return the rows of an object. An object without rows is an error; `keyword` is the name of the argument."""
    kind = describe(value)
    if hasattr(value, "collect") and hasattr(value, "collect_schema"):  # a LazyFrame of polars
        value = value.collect()
    if not has_items(value):
        raise DataError(f"{keyword}= cannot be {kind}", f"it takes {ACCEPTED}")
    if isinstance(value, Mapping):
        return Rows(kind, columns_of(value, keyword))
    if hasattr(value, "columns") and hasattr(value, "itertuples"):
        return Rows(kind, frame_rows(value))
    if hasattr(value, "columns") and hasattr(value, "iter_rows"):
        return Rows(kind, value.iter_rows(named=True))
    if hasattr(value, "column_names") and hasattr(value, "to_batches"):
        return Rows(kind, (row for batch in value.to_batches() for row in batch.to_pylist()))
    if hasattr(value, "column_names") and hasattr(value, "cast_column"):
        return dataset_rows(value, kind)
    names = getattr(value, "classes", None)  # as in the datasets of torchvision
    classes = {"": [str(name) for name in names]} if isinstance(names, list | tuple) else {}
    return Rows(kind, iter(value) if hasattr(value, "__iter__") else (value[i] for i in range(len(value))), classes)


def has_items(value: Any) -> bool:
    """Whether an object can be iterated over, or has numbered items, as a map-style Dataset of torch has."""
    if isinstance(value, str | bytes | type) or getattr(value, "shape", None) == ():  # a number of numpy or torch
        return False
    return hasattr(value, "__iter__") or (hasattr(value, "__getitem__") and hasattr(value, "__len__"))


def describe(value: Any) -> str:
    """Name an object by its type: "a list", "an iterator", "a pandas DataFrame"."""
    kind, library = type(value).__name__, type(value).__module__.partition(".")[0]
    if isinstance(value, Iterator) and library == "builtins":
        return "a generator" if kind == "generator" else "an iterator"
    if kind == "bytes":
        return kind
    if library in LIBRARIES:
        kind = f"{library} {kind}"
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"


def columns_of(columns: Mapping[Any, Any], keyword: str) -> Iterator[dict[str, Any]]:
    """Iterate over the rows of a dictionary of columns, which must have the same length."""
    if any(hasattr(value, "column_names") for value in columns.values()):
        splits = listed([f"{keyword}=data[{name!r}]" for name in columns], most=3)
        raise DataError(f"{keyword}= contains several splits of a dataset", f"give one of them: {splits}")
    sizes = {name: len(value) for name, value in columns.items() if hasattr(value, "__len__")}
    if len(sizes) < len(columns) or any(isinstance(value, str) for value in columns.values()):
        name = next(name for name, value in columns.items() if name not in sizes or isinstance(value, str))
        raise DataError(
            f"{keyword}= is a dictionary, but `{name}` is {describe(columns[name])}, not a column",
            "give a dictionary of lists, or a list of dictionaries",
        )
    if len({*sizes.values()}) > 1:
        each = listed([f"`{name}` has {count(n, 'row')}" for name, n in sizes.items()], most=3)
        raise DataError(f"{keyword}= has columns of different lengths: {each}", "give columns of the same length")
    return (dict(zip(map(str, columns), row)) for row in zip(*columns.values()))


def frame_rows(frame: Any) -> Iterator[Any]:
    """Iterate over the rows of a pandas DataFrame; columns that have only numbers have no names."""
    rows = frame.itertuples(index=False, name=None)
    if all(isinstance(name, int) for name in frame.columns):
        return iter(rows)
    return (dict(zip(map(str, frame.columns), row)) for row in rows)


def dataset_rows(dataset: Any, kind: str) -> Rows:
    """Return the rows of a Dataset of the library datasets. Images and recordings stay encoded."""
    classes: dict[str, list[str]] = {}
    dataset = dataset.with_format(None)
    for name, feature in (dataset.features or {}).items():
        if type(feature).__name__ in ("Image", "Audio"):
            dataset = dataset.cast_column(name, type(feature)(decode=False))
        while (inner := getattr(feature, "feature", None)) is not None:  # the items of a list
            feature = inner
        if type(feature).__name__ == "ClassLabel":
            classes[name] = list(map(str, feature.names))
    return Rows(kind, iter(dataset), classes)


def named(row: Any, names: Iterable[str], where: str, expected: str) -> dict[str, Any]:
    """Return a row as a dictionary. `names` are the columns of rows without names; longer rows have numbers, too."""
    if isinstance(row, Mapping):
        return {str(name): value for name, value in row.items()}
    cells, known = as_cells(row), list(names)
    if cells is None or len(cells) < len(known):
        size = "" if cells is None else f" of {count(len(cells), 'value')}"
        raise DataError(
            f"{where}: {describe(row)}{size}, not {expected}", f"each row must be {expected}, or a dictionary"
        )
    return {known[i] if i < len(known) else f"column {i}": value for i, value in enumerate(cells)}


def as_cells(row: Any) -> list[Any] | None:
    """Return the cells of a row without names, or None if it is no such row."""
    if hasattr(row, "tolist") and getattr(row, "ndim", 0) == 1:  # a row of an array
        row = row.tolist()
    return list(row) if isinstance(row, tuple | list) else None


def plain(value: Any, classes: list[str] | None, where: str) -> Any:
    """Return a value as JSON can hold it. A missing value is an empty text; a numbered class has its name."""
    if hasattr(value, "tolist") and hasattr(value, "dtype"):  # of numpy or torch
        value = value.tolist()
    if value is None or type(value).__name__ in ("NAType", "NaTType") or value != value:
        return ""
    if isinstance(value, bool | str):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, int):
        return classes[value] if classes is not None and 0 <= value < len(classes) else int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, Mapping):
        return {str(name): plain(item, None, where) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, classes, where) for item in value]
    if isinstance(value, bytes) or not is_scalar(value):
        raise DataError(f"{where}: {describe(value)} in a cell", "cells are texts, numbers, or lists of them")
    return str(value)


def is_scalar(value: Any) -> bool:
    """Whether a value of another type, such as a date, a path or a Decimal, is written as a text."""
    return hasattr(value, "isoformat") or hasattr(value, "__fspath__") or hasattr(value, "as_tuple")

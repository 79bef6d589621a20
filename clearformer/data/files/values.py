"""Arrow values as Python objects, within limits: many values can refer to one long text, and take no space in the file.

    column_values(batch, "translation.en", path)        the values of a column, one after the other

A column that needs little memory becomes a list at once. Any other is converted value by value, and a list item by
item, up to a limit.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clearformer.errors import DataError
from clearformer.wording import count

MAX_AT_ONCE = 2**27  # bytes of the values of a column that are converted at once
MAX_NESTED = 2**28  # bytes of a list or a struct
ITEM = 64  # bytes of any value as a Python object, without its text


def column_values(batch: Any, key: str, path: Path) -> Iterator[Any]:
    """Return the values of a column of a record batch; `translation.en` is a field of a struct."""
    from pyarrow import compute, types

    outer, *inner = key.split(".") if key not in batch.schema.names else [key]
    column = compute.struct_field(batch.column(outer), inner) if inner else batch.column(outer)
    if size_of(column) <= MAX_AT_ONCE:
        return iter(column.cast(dense(column.type)).to_pylist() if has_dictionary(column.type) else column.to_pylist())
    if not types.is_nested(column.type):
        return (value.as_py() for value in column)
    return (nested_value(value, Allowance(f"{path}, column `{key}`")) for value in column)


def size_of(column: Any) -> float:
    """Return an upper bound of the bytes of a column as Python objects, infinite for types that are not known here."""
    from pyarrow import compute, types

    kind, n_bytes = column.type, float(ITEM * len(column))
    if types.is_dictionary(kind):
        sizes = compute.binary_length(column.dictionary) if is_text(kind.value_type) else None
        return n_bytes + (compute.sum(sizes.take(column.indices)).as_py() or 0) if sizes is not None else float("inf")
    if is_text(kind):
        return n_bytes + (compute.sum(compute.binary_length(column)).as_py() or 0)
    if types.is_struct(kind):
        return n_bytes + sum(map(size_of, column.flatten()))
    if types.is_list(kind) or types.is_large_list(kind):
        return n_bytes + size_of(column.flatten())
    return n_bytes if types.is_primitive(kind) or types.is_null(kind) else float("inf")


def is_text(kind: Any) -> bool:
    from pyarrow import types

    return any(
        is_kind(kind) for is_kind in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    )


def has_dictionary(kind: Any) -> bool:
    return bool(dense(kind) != kind)


def dense(kind: Any) -> Any:
    """Return the type of the same values without dictionaries in its lists; converting these is slow."""
    import pyarrow
    from pyarrow import types

    if types.is_dictionary(kind):
        return kind.value_type
    if types.is_list(kind):
        return pyarrow.list_(pyarrow.field(kind.value_field.name, dense(kind.value_type), kind.value_field.nullable))
    return kind


class Allowance:
    """How large the lists and structs in a cell may still be."""

    def __init__(self, where: str) -> None:
        self.where, self.n_left = where, MAX_NESTED

    def take(self, n_bytes: int) -> None:
        self.n_left -= n_bytes
        if self.n_left < 0:
            raise DataError(
                f"{self.where}: a list of more than {count(MAX_NESTED // ITEM, 'item')}, or {MAX_NESTED >> 20} MiB",
                "divide it into several rows",
            )


def nested_value(value: Any, allowance: Allowance) -> Any:
    """Return a list or a struct as a Python object, item by item."""
    from pyarrow import types

    if not value.is_valid:
        return None
    if types.is_struct(value.type):
        return {name: nested_value(item, allowance) for name, item in value.items()}
    if types.is_nested(value.type) and hasattr(value, "values"):
        allowance.take(len(value.values) * ITEM)
        return [nested_value(item, allowance) for item in value.values]
    result = value.as_py()
    if isinstance(result, str | bytes):
        allowance.take(len(result))
    return result

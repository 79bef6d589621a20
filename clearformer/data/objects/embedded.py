"""Recordings that are encoded inside a table: .parquet files and datasets with a column of the type `Audio`.

Their rows are written to sound files, as the rows of Python objects are (see write.py).
"""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from clearformer.data.files.columnar import is_dataset
from clearformer.data.files.columns import SOUNDS
from clearformer.data.files.open import open_table
from clearformer.data.files.table import Table
from clearformer.data.objects.rows import Rows
from clearformer.data.sources import file_type


def embedded_sounds(path: Path) -> Rows | None:
    """Return the rows of a table that contains encoded sounds, not paths of sound files; otherwise None."""
    if not is_dataset(path) and not (path.is_file() and file_type(path) == ".parquet"):
        return None
    table = open_table(path)
    names = table.names()
    sound = next((name for name in SOUNDS if f"{name}.bytes" in names), None)
    return None if sound is None else Rows(f"the dataset {path}", sound_rows(table, sound, names))


def sound_rows(table: Table, sound: str, names: list[str]) -> Iterator[dict[str, Any]]:
    """Yield each row with its sound as a dictionary; without bytes, the sound is in the file at `path`."""
    others = [name for name in names if not name.startswith(f"{sound}.")]
    parts = [name for name in ("bytes", "path") if f"{sound}.{name}" in names]
    with closing(table.read([f"{sound}.{name}" for name in parts] + others)) as rows:
        for _, values in rows:
            cell = {name: value or None for name, value in zip(parts, values)}
            yield {sound: cell, **dict(zip(others, values[len(parts) :]))}

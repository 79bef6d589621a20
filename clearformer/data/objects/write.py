"""Write the rows of a Python object to files that the sources of a recipe read.

    write_object(rows, "pairs", folder)         folder/pairs.jsonl, one JSON object per row
    write_object(rows, "recordings", folder)    the same; samples become WAV files next to it
    write_object(rows, "images", folder)        folder/images/<class>/000000.png

Rows without names get them here: from the first row if it is a header, as in files, or the well-known names.
"""

import json
import wave
from collections.abc import Callable, Iterator
from itertools import chain
from os.path import abspath
from pathlib import Path
from typing import Any, NamedTuple

from clearformer.data.audio import given_samples
from clearformer.data.files.columns import header_of_pairs, label_columns, recording_columns
from clearformer.data.objects.rows import Rows, as_cells, named, plain
from clearformer.errors import DataError
from clearformer.wording import count


class Kind(NamedTuple):
    """What the rows of a flag are: their name, the columns of tuples, and what recognises a header."""

    noun: str
    names: tuple[str, ...]
    expected: str
    is_header: Callable[[list[str]], Any] = lambda row: None


KINDS = {
    "pairs": Kind("pair", ("source", "target"), "a tuple (source, target)", header_of_pairs),
    "text": Kind("text", ("text",), "a text"),
    "labels": Kind(
        "labelled text", ("text", "label"), "a tuple (text, label)", lambda row: label_columns(row, is_header=True)
    ),
    "images": Kind("image", ("image", "label"), "a tuple (image, label)"),
    "recordings": Kind("recording", ("path", "text"), "a tuple (recording, transcript)", recording_columns),
}


class Written(NamedTuple):
    """The file or folder of an object, its description for messages, and the names of its columns."""

    path: Path
    title: str
    names: list[str]


def write_object(rows: Rows, keyword: str, folder: Path) -> Written:
    """Write an object to a file in `folder`. An object without rows is an error."""
    first = next(rows.rows, None)
    if first is None:
        raise DataError(f"{keyword}= is empty: {rows.kind} without rows", f"give at least one {KINDS[keyword].noun}")
    every = chain([first], rows.rows)
    if keyword == "images":
        from clearformer.data.objects.images import write_images  # needs Pillow

        path = folder / "images"
        n = write_images(every, rows, path)
        return Written(path, f"{rows.kind} of {count(n, 'image')}", [])
    path = folder / f"{keyword}.jsonl"
    names, n = write_table(every, first, rows, keyword, path)
    return Written(path, f"{rows.kind} of {count(n, KINDS[keyword].noun)}", names)


def write_table(every: Iterator[Any], first: Any, rows: Rows, keyword: str, path: Path) -> tuple[list[str], int]:
    """Write rows as JSON objects, and return the names of the columns and the number of rows."""
    names, has_header = column_names(first, keyword)
    if has_header:
        next(every)
    kind, columns, n = KINDS[keyword], list[str](), 0
    with open(path, "w", encoding="utf-8") as file:
        for n, row in enumerate(every, 1):
            where = f"{rows.kind}, row {n + has_header}"
            if keyword == "text" and isinstance(row, str):
                row = (row,)
            cells = named(row, names, where, kind.expected)
            if not cells:
                raise DataError(f"{where}: a row without columns", f"each row must be {kind.expected}, or a dictionary")
            columns = columns or list(cells)
            if keyword == "recordings":
                sound = recording_columns(list(cells)).get("sound", next(iter(cells), ""))
                cells[sound] = written_sound(cells[sound], path.parent, n, where)
            values = {name: plain(cell, classes_of(rows, name), where) for name, cell in cells.items()}
            try:
                file.write(f"{json.dumps(values, ensure_ascii=False)}\n")
            except UnicodeEncodeError as error:
                raise DataError(f"{where}: text that cannot be encoded ({error.reason})", "remove it") from None
    if n == 0:
        raise DataError(f"{keyword}= is empty: {rows.kind} with a header only", f"give at least one {kind.noun}")
    return columns, n


def classes_of(rows: Rows, name: str) -> list[str] | None:
    return rows.classes.get(name, rows.classes.get("") if name == "label" else None)


def column_names(first: Any, keyword: str) -> tuple[list[str], bool]:
    """Return the columns of rows that are tuples, and whether the first row is a header that names them."""
    cells, kind = as_cells(first), KINDS[keyword]
    if cells and all(isinstance(cell, str) for cell in cells) and kind.is_header(cells):
        return cells, True
    if cells and keyword == "labels" and isinstance(cells[0], list | tuple):
        return ["tokens", "labels"], False  # labelled words
    return list(kind.names), False


def written_sound(cell: Any, folder: Path, number: int, where: str) -> Any:
    """Write samples, or an encoded sound, to a file and return its name; a path becomes absolute."""
    if isinstance(cell, str) or hasattr(cell, "__fspath__"):
        return abspath(cell)
    if isinstance(cell, dict) and cell.get("bytes"):
        name = f"{number:06}{Path(cell.get('path') or '').suffix}"
        (folder / name).write_bytes(cell["bytes"])
        return name
    if isinstance(cell, dict) and isinstance(cell.get("path"), str) and "array" not in cell:
        return abspath(cell["path"])
    try:
        samples, rate = given_samples(cell, 0)
    except DataError as error:
        raise DataError(f"{where}: {error.message}", error.hint) from None
    if rate == 0:
        raise DataError(f"{where}: samples without their rate", "give a tuple of samples and their rate")
    with wave.open(str(folder / f"{number:06}.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(4)
        file.setframerate(rate)
        file.writeframes((samples.astype("float64") * 2**31).round().clip(-(2**31), 2**31 - 1).astype("<i4").tobytes())
    return f"{number:06}.wav"

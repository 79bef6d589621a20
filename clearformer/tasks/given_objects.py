"""Data that is given as Python objects, wherever a path can be given, and datasets with encoded recordings.

An object is written to a temporary file, which is read like any other file; its columns are recognised in the same way.
A run keeps a copy of the file, in its folder `given`, and its recipe names the object: given = "a list of 2,000 pairs".
"""

from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from clearformer.data.files.compressed import ENDINGS
from clearformer.data.files.open import PAIRS
from clearformer.data.objects.embedded import embedded_sounds
from clearformer.data.objects.rows import Rows, describe, open_rows
from clearformer.data.objects.staging import TITLES, new_folder
from clearformer.data.objects.write import KINDS, write_object
from clearformer.disk import FULL
from clearformer.errors import ConfigError, DataError, MachineError
from clearformer.tasks import Given
from clearformer.tasks.task import Task


def as_files(given: Given) -> Given:
    """Replace objects by the paths of files with their content. Paths, and the data of registered flags, stay.

    An iterator is read here and can be read only once. The result can be used for several runs.
    """
    keyword = given.flag.name
    if keyword not in KINDS:
        return given
    splits, titles, options = dict(given.splits), dict(given.titles), dict(given.options)
    for split, value in given.splits.items():
        rows = embedded_sounds(Path(value)) if keyword == "recordings" and isinstance(value, str | PathLike) else None
        if rows is None and is_path(value, keyword):
            continue
        argument = keyword if split == "train" else split
        folder = new_folder()
        try:
            written = write_object(rows or as_rows(value, keyword, argument), keyword, folder)
        except OSError as error:
            if error.errno not in FULL:  # raised by an iterator of the user
                raise
            raise MachineError(
                f"{argument}= cannot be stored in {folder}: the disk is full", "free some space, or set TMPDIR"
            ) from None
        TITLES[written.path] = written.title
        splits[split], titles[split] = written.path, written.title
        options = {name: with_names(column, written.names, name) for name, column in options.items()}
    if titles and len(titles) < len(splits) and options != given.options:
        raise ConfigError(
            "numbers of columns cannot be used for both files and Python objects", "choose columns by name"
        )
    return replace(given, splits=splits, options=options, titles=titles)


def sources_of(task: type[Task], given: Given) -> dict[str, dict[str, Any]]:
    """Return the source of each split as the task reads it, and what was given if it was an object."""
    given = as_files(given)
    origins = {split: {"given": title} for split, title in given.titles.items()}
    return {split: {**source, **origins.get(split, {})} for split, source in task.sources(given).items()}


def is_path(value: Any, keyword: str) -> bool:
    """Whether data is given by paths: one; two aligned files of pairs; or several files of text.

    In a list of strings for text, strings are paths if one of them exists as a file or ends like a data file.
    """
    if isinstance(value, str | PathLike):
        return True
    if not isinstance(value, tuple | list) or not value or not all(isinstance(item, str | PathLike) for item in value):
        return False
    if keyword == "pairs":
        return len(value) == 2
    return keyword == "text" and any(isinstance(item, PathLike) or is_file_name(item) for item in value)


def is_file_name(text: str) -> bool:
    if len(text) > 1000 or "\n" in text:
        return False
    return Path(text).suffix.lower() in (*PAIRS, *ENDINGS) or exists(text)


def exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except (OSError, ValueError):  # too long for a file name, or with a NUL character
        return False


def as_rows(value: Any, keyword: str, argument: str) -> Rows:
    """Return the rows of an object. Images can also be two arrays, of images and of labels."""
    if keyword == "images":
        pair = (value.get("images"), value.get("labels")) if isinstance(value, dict) else value
        if isinstance(pair, tuple) and len(pair) == 2 and all(getattr(part, "ndim", 0) for part in pair):
            images, labels = pair
            if len(images) != len(labels):
                raise DataError(
                    f"{argument}= has arrays of different lengths, {len(images):,} and {len(labels):,}",
                    "give one label per image",
                )
            return Rows("a pair of arrays", zip(images, labels))
        if getattr(value, "ndim", 0) in (3, 4):
            return Rows("an array", iter((image, None) for image in value))
    if isinstance(value, tuple | list) and value and keyword != "text" and isinstance(value[0], str | bytes):
        raise DataError(
            f"{argument}= is {describe(value)} of strings", f"give a list, each item {KINDS[keyword].expected}"
        )
    return open_rows(value, argument)


def with_names(column: Any, names: list[str], option: str) -> Any:
    """Return columns by name, as the files of objects have them; numbers count the columns of the object."""
    if isinstance(column, tuple | list):
        return tuple(with_names(part, names, option) for part in column)
    if not isinstance(column, int):
        return column
    if not 0 <= column < len(names):
        raise ConfigError(f"{option}: there is no column {column}", f"the columns are {', '.join(names)}, from 0")
    return names[column]

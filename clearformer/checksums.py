"""checksums.json: the SHA-256 of every file of a run folder, so that a flipped bit is found and named.

    seal(folder)       add the checksums of all files that are new or have grown
    note(path, draft)  before a file is replaced: add the checksum of its successor
    add, forget        the same for files that another process writes, and before files are removed
    faults(folder)     compare every file with its checksum, and describe the files that differ or are missing

A file may have two checksums for a moment: its own, and the checksum of the file that is about to replace it. Whichever
of the two files is there after a crash, it is right. Logs, which only grow, are compared up to the length they had.

    {"model.safetensors": {"bytes": 5536, "sha256": ["9f86…"]}, …}
"""

import hashlib
import json
import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

from clearformer.small_files import read_json
from clearformer.wording import count

CHECKSUMS = "checksums.json"
GROWING = ".jsonl"
PART = 2**20  # bytes read at a time
SMALL = 2**28  # bytes that are read in about a fifth of a second
WRITING = Lock()

Table = dict[str, dict[str, Any]]


def read(folder: Path) -> Table | None:
    """Return the checksums of a folder; None if it has none, and a ValueError if the file is damaged."""
    try:
        table = read_json(folder / CHECKSUMS)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(error.strerror) from None
    if not isinstance(table, dict) or not all(map(is_entry, table.values())):
        raise ValueError("it is not a table of checksums")
    return table


def is_entry(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("bytes"), int)
        and isinstance(entry.get("sha256"), list)
        and all(isinstance(digest, str) for digest in entry["sha256"])
    )


def write(folder: Path, table: Table) -> None:
    """Replace the checksums of a folder, whole or not at all."""
    draft = folder / f".{CHECKSUMS}.{os.getpid()}"
    try:
        with open(draft, "w", encoding="utf-8") as file:
            rows = (f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in sorted(table.items()))
            file.write("{\n" + ",\n".join(rows) + "\n}\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, folder / CHECKSUMS)
    finally:
        with suppress(OSError):
            draft.unlink()


def files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder and of its subfolders, without temporary files."""
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        is_hidden = any(part.startswith(".") for part in parts)
        if path.is_file() and not path.is_symlink() and not is_hidden and parts != (CHECKSUMS,):
            yield path


def digest(path: Path, n_bytes: int) -> str:
    """Return the SHA-256 of the first n bytes of a file, in hexadecimal digits."""
    total = hashlib.sha256()
    with open(path, "rb") as file:
        while n_bytes > 0 and (part := file.read(min(PART, n_bytes))):
            total.update(part)
            n_bytes -= len(part)
    return total.hexdigest()


def describe(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    return {"bytes": size, "sha256": [digest(path, size)]}


def seal(folder: Path, changed: Collection[str] | None = ()) -> None:
    """Add the checksums of files that are new or have another size, and drop those of files that are gone.

    `changed` are the names of other files to read again; None means all.
    """
    with WRITING:
        try:
            old = read(folder) or {}
        except ValueError:
            old = {}
        table: Table = {}
        for path in files(folder):
            name = path.relative_to(folder).as_posix()
            entry = {} if changed is None or name in changed else old.get(name, {})
            is_known = entry.get("bytes") == path.stat().st_size and len(entry["sha256"]) == 1
            table[name] = entry if is_known else describe(path)
        if table != old:
            write(folder, table)


def note(path: Path, draft: Path) -> None:
    """Before `draft` becomes `path`: add its checksum, if a folder around `path` keeps checksums."""
    for folder in (path.parent, path.parent.parent):
        if (folder / CHECKSUMS).exists() and path.name != CHECKSUMS:
            with WRITING, suppress(ValueError):  # damaged: `faults` says so
                table, new = read(folder) or {}, describe(draft)
                name = path.relative_to(folder).as_posix()
                before = table.get(name, {}).get("sha256", [])[-1:] if path.exists() else []
                table[name] = {**new, "sha256": [*(one for one in before if one not in new["sha256"]), *new["sha256"]]}
                write(folder, table)
            return


def add(folder: Path, entries: Table) -> None:
    """Add the checksums of files that other processes have written."""
    with WRITING, suppress(ValueError):  # damaged: `faults` says so
        write(folder, {**(read(folder) or {}), **entries})


def forget(folder: Path, names: Collection[str]) -> None:
    """Before files are removed: drop their checksums, if the folder keeps any of them."""
    with WRITING, suppress(ValueError):
        table = read(folder) or {}
        if any(name in table for name in names):
            write(folder, {name: entry for name, entry in table.items() if name not in names})


def small_files(folder: Path) -> list[str]:
    """Return the names of the files in a folder, if all of them together are read in a moment."""
    paths = list(files(folder)) if folder.is_dir() else []
    is_small = sum(path.stat().st_size for path in paths) <= SMALL
    return [path.relative_to(folder.parent).as_posix() for path in paths] if is_small else []


def faults(folder: Path, names: Collection[str] | None = None) -> list[str]:
    """Return a sentence for each file that is missing or not what was written; none for a folder without checksums.

    `names` are the files to read; None means all.
    """
    try:
        table = read(folder) or {}
    except ValueError as error:
        return [f"{folder / CHECKSUMS} cannot be read: {error}"]
    problems = []
    for name, entry in table.items():
        path = folder / name
        if names is not None and name not in names:
            continue
        if not path.is_file():
            problems.append(f"{path} is missing")
            continue
        size = path.stat().st_size
        is_growing = path.suffix == GROWING
        if len(entry["sha256"]) == 1 and (size < entry["bytes"] or (size > entry["bytes"] and not is_growing)):
            problems.append(f"{path} has {count(size, 'byte')} instead of {entry['bytes']:,}")
        elif digest(path, entry["bytes"] if is_growing else size) not in entry["sha256"]:
            problems.append(f"{path} is not what was written: its checksum differs")
    return problems

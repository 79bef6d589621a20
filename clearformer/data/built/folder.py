"""The index of a built folder, and the pointer to it in a run folder."""

import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from clearformer.data.store import MARK
from clearformer.data.tensor_file import TensorFileWriter, writing
from clearformer.errors import DataError

INDEX, BUILDING, REMOTE = "built.json", "building.json", "remote.json"
FORMAT = 1
SPLIT_FILES = ("valid.safetensors", "valid.json", "test.jsonl", "test.safetensors")
POINTER = "built 1"  # the value of MARK in a file that only points to a built folder


@dataclass(frozen=True)
class Shard:
    """A shard: its name without suffix, its number of rows, and the tokens on each side."""

    name: str
    rows: int
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Index:
    """What a built folder contains. `tables` has the parts of the recipe that it was built with, such as [text]."""

    kind: str
    shards: tuple[Shard, ...]
    n_chars: int
    tables: dict[str, Any] = field(default_factory=dict)
    report: tuple[str, ...] = ()

    @property
    def n_rows(self) -> int:
        return sum(shard.rows for shard in self.shards)

    def dump(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}


def is_built(path: Any) -> bool:
    return isinstance(path, Path) and (path / INDEX).is_file()


def read_index(folder: Path) -> Index:
    try:
        facts = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        if facts.pop("format") != FORMAT:
            raise DataError(f"{folder} was built by another version of clearformer", "build it again")
        shards = tuple(Shard(s["name"], int(s["rows"]), tuple(s["tokens"])) for s in facts.pop("shards"))
        return Index(**{**facts, "shards": shards, "report": tuple(facts["report"])})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{folder / INDEX} cannot be read ({error})", "build the folder again") from None


def require_kind(folder: Path, kind: str, option: str) -> Index:
    """Return the index of a folder that holds pairs or documents; another kind is refused."""
    index = read_index(folder)
    if index.kind != kind:
        raise DataError(f"{folder} was built from {index.kind}, not from {kind}", f"give a folder that suits {option}")
    return index


def write_pointer(path: Path, folder: Path) -> None:
    """Write a file that stands for the shards of a folder, in the place of a store."""
    facts = {MARK: POINTER, "folder": str(folder.resolve())}
    if (folder / REMOTE).is_file():
        facts["url"] = json.loads((folder / REMOTE).read_text(encoding="utf-8"))["url"]
    TensorFileWriter(path, {}, facts).join()


def read_pointer(path: Path) -> tuple[Path, str | None] | None:
    """Return the folder and the address that a file points to; None if it is an ordinary store."""
    try:
        with safe_open(path, framework="np") as file:
            facts = dict(file.metadata() or {})
    except (SafetensorError, OSError):
        return None  # the store says what is wrong with it
    return (Path(facts["folder"]), facts.get("url")) if facts.get(MARK) == POINTER else None


def read_lengths(folder: Path) -> np.ndarray:
    """Return the lengths of all rows, (n, sides) int32: a view of the mapped file."""
    try:
        with safe_open(folder / "lengths.safetensors", framework="pt") as file:
            return np.asarray(file.get_tensor("lengths").numpy())
    except (SafetensorError, OSError) as error:
        raise DataError(f"{folder}/lengths.safetensors cannot be read ({error})", "build the folder again") from None


def use_built(folder: Path, data: Path) -> None:
    """Prepare a run on a built folder: copy its small splits, and point to its shards, which stay where they are."""
    data.mkdir(parents=True, exist_ok=True)
    with writing(data):
        for name in SPLIT_FILES:
            if (folder / name).is_file():
                shutil.copyfile(folder / name, data / name)
    write_pointer(data / "train.safetensors", folder)

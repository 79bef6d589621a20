"""The index of a built folder, and the pointer to it in a run folder.

The index lists the size and the SHA-256 of every file that training reads. A file is compared with it when it is
opened; a run compares the whole list with the one that it was started with, so that it never continues on other data.
"""

import json
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from clearformer import checksums
from clearformer.data.store import MARK
from clearformer.data.tensor_file import TensorFileWriter, writing
from clearformer.data.workers import usable_threads
from clearformer.errors import DataError
from clearformer.small_files import read_json
from clearformer.wording import count

INDEX, BUILDING, REMOTE = "built.json", "building.json", "remote.json"
FORMAT = 1
SPLIT_FILES = ("valid.safetensors", "valid.json", "test.jsonl", "test.safetensors")
POINTER = "built 1"  # the value of MARK in a file that only points to a built folder
SHARDED = "shards"  # the order of text in runs on a built folder; that of runs begun before there was one is ""
SHARD = re.compile(r"train-\d{5,}")
REBUILD = "build the folder again, or copy it again"
MOST = 2**53  # rows and tokens


@dataclass(frozen=True)
class Shard:
    """A shard: its name without suffix, its number of rows, and the tokens on each side.

    before: the tokens in earlier shards of a document that continues in this one, as its first row.
    """

    name: str
    rows: int
    tokens: tuple[int, ...]
    before: int = 0


@dataclass(frozen=True)
class Index:
    """What a built folder contains. `tables` has the parts of the recipe that it was built with, such as [text].

    files: {"train-00000.safetensors": (bytes, SHA-256), …}; empty if the folder was built before there were checksums.
    """

    kind: str
    shards: tuple[Shard, ...]
    n_chars: int
    tables: dict[str, Any] = field(default_factory=dict)
    report: tuple[str, ...] = ()
    files: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        return sum(shard.rows for shard in self.shards)

    @property
    def fingerprint(self) -> str:
        """Identifies the content of the files; "" if it is not known."""
        return sha256(json.dumps(sorted(self.files.items())).encode()).hexdigest() if self.files else ""

    def dump(self) -> dict[str, Any]:
        facts = {"format": FORMAT, **asdict(self)}
        for shard in facts["shards"]:
            if not shard["before"]:
                del shard["before"]
        return facts

    def fault(self, path: Path, is_whole: bool = False) -> str | None:
        """Say how a file differs from what was built. Large files are only read if `is_whole` is set."""
        if path.name not in self.files:
            return None
        size, expected = self.files[path.name]
        try:
            here = path.stat().st_size
            if here != size:
                return f"{path} has {count(here, 'byte')} instead of {size:,}"
            if (is_whole or size <= checksums.SMALL) and checksums.digest(path, size) != expected:
                return f"{path} is not what was built: its checksum differs"
        except FileNotFoundError:
            return f"{path} is missing"
        except OSError as error:
            return f"{path} cannot be read ({error.strerror})"
        return None


def list_files(folder: Path) -> dict[str, tuple[int, str]]:
    """Return the size and SHA-256 of every file that training reads."""

    def describe(path: Path) -> tuple[int, str]:
        size = path.stat().st_size
        return size, checksums.digest(path, size)

    paths = [path for path in checksums.files(folder) if path.name not in (INDEX, BUILDING) and not is_count(path)]
    with ThreadPoolExecutor(usable_threads()) as threads:
        return {path.name: facts for path, facts in zip(paths, threads.map(describe, paths))}


def is_count(path: Path) -> bool:
    """Whether a file has the counts of a shard, which only an interrupted build reads again."""
    return path.suffix == ".json" and SHARD.fullmatch(path.stem) is not None


def faults(folder: Path) -> list[str]:
    """Compare every file with the index, and describe the files that differ or are missing.

    Of a folder that is read from an address, the shards that were not fetched yet are left out.
    """
    index, is_remote = read_index(folder), (folder / REMOTE).is_file()
    paths = [folder / name for name in index.files if not is_remote or (folder / name).exists()]
    with ThreadPoolExecutor(usable_threads()) as threads:
        problems = threads.map(lambda path: index.fault(path, is_whole=True), paths)
        return [problem for problem in problems if problem is not None]


def require_built(folder: Path, names: tuple[str, ...], index: Index | None = None) -> None:
    """Raise an error if one of these files is there and not what was built."""
    index = index or read_index(folder)
    for name in names:
        if (fault := index.fault(folder / name)) is not None:
            raise DataError(fault, REBUILD)


def is_built(path: Any) -> bool:
    return isinstance(path, Path) and (path / INDEX).is_file()


def read_index(folder: Path) -> Index:
    try:
        facts = read_json(folder / INDEX)
        if facts.pop("format") != FORMAT:
            raise DataError(f"{folder} was built by another version of clearformer", "build it again")
        return parse_index(**facts)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{folder / INDEX} cannot be read ({short(error)})", REBUILD) from None


def parse_index(kind: Any, shards: Any, n_chars: Any, tables: Any, report: Any, files: Any = None) -> Index:
    """Return the index that a file describes; raises a ValueError for what `data build` cannot have written."""
    listed = tuple(Shard(s["name"], s["rows"], tuple(s["tokens"]), s.get("before", 0)) for s in shards)
    n_sides, n_tokens = {"pairs": 2, "documents": 1}[kind], 0
    for shard in listed:
        if not isinstance(shard.name, str) or not SHARD.fullmatch(shard.name):
            raise ValueError(f"{shard.name!r:.40} is no name of a shard")
        if len(shard.tokens) != n_sides or not all(map(is_size, (shard.rows, *shard.tokens))):
            raise ValueError(f"the numbers of {shard.name}")
        if not is_size(shard.before) or shard.before > n_tokens or (shard.before and not shard.rows):
            raise ValueError(f"the document that continues in {shard.name}")
        n_tokens += shard.tokens[0] if kind == "documents" else 0
    is_documents = kind == "documents"
    if not listed or not is_size(n_chars) or (is_documents and not is_size(tables["start"])):
        raise ValueError("a number is missing")
    if not isinstance(tables, dict) or not all(isinstance(line, str) for line in report):
        raise ValueError("no tables")
    known = {name: (size, digest) for name, (size, digest) in (files or {}).items()}
    if not all(is_size(size) and isinstance(digest, str) for size, digest in known.values()):
        raise ValueError("the list of files")
    return Index(kind, listed, n_chars, tables, tuple(report), known)


def is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST


def short(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:200]


def require_kind(folder: Path, kind: str, option: str) -> Index:
    """Return the index of a folder that holds pairs or documents; another kind is refused."""
    index = read_index(folder)
    if index.kind != kind:
        raise DataError(f"{folder} was built from {index.kind}, not from {kind}", f"give a folder that suits {option}")
    return index


def read_url(folder: Path) -> str:
    """Return the address that a folder is fetched from."""
    try:
        url = read_json(folder / REMOTE)["url"]
        if not isinstance(url, str):
            raise ValueError("the address is not a text")
        return url
    except (OSError, ValueError, KeyError, TypeError) as error:
        hint = "delete the folder, and give the address again"
        raise DataError(f"{folder / REMOTE} cannot be read ({short(error)})", hint) from None


class Pointer(NamedTuple):
    """What a file that stands for the shards of a folder says of them."""

    folder: Path
    url: str | None = None
    """The address that the folder is fetched from."""
    built: str = ""
    """The fingerprint of what was built."""
    order: str = ""
    """The order of the rows of text: SHARDED, or "" for that of all rows."""


def write_pointer(path: Path, folder: Path) -> None:
    """Write a file that stands for the shards of a folder, in the place of a store."""
    index = read_index(folder)
    facts = {MARK: POINTER, "folder": str(folder.resolve()), "built": index.fingerprint, "order": SHARDED}
    if (folder / REMOTE).is_file():
        facts["url"] = read_url(folder)
    TensorFileWriter(path, {}, facts).join()


def read_pointer(path: Path) -> Pointer | None:
    """Return what a file points to; None if it is an ordinary store."""
    try:
        with safe_open(path, framework="np") as file:
            facts = dict(file.metadata() or {})
    except (SafetensorError, OSError):
        return None  # the store says what is wrong with it
    if facts.get(MARK) != POINTER:
        return None
    if "folder" not in facts:
        raise DataError(f"{path} is damaged: it points to no folder", "copy the run folder again")
    return Pointer(Path(facts["folder"]), facts.get("url"), facts.get("built", ""), facts.get("order", ""))


def require_same(folder: Path, fingerprint: str) -> None:
    """Raise if a folder is not the one that a run was started with; with `clearformer --verify`, read all of it."""
    now = read_index(folder).fingerprint
    if fingerprint and now != fingerprint:
        raise DataError(
            f"{folder} was built again since this run was started, and its content is different",
            "build it from the files of before, or start a new run in another --out",
        )
    if os.environ.get("CLEARFORMER_VERIFY") and (problems := faults(folder)):
        raise DataError(problems[0], REBUILD)


def read_lengths(folder: Path, index: Index) -> np.ndarray:
    """Return the lengths of all rows, (n, sides) int32: a view of the mapped file."""
    path = folder / "lengths.safetensors"
    require_built(folder, (path.name,), index)
    try:
        with safe_open(path, framework="pt") as file:
            lengths = np.asarray(file.get_tensor("lengths").numpy())
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path} cannot be read ({error})", REBUILD) from None
    sums = [sum(shard.tokens[side] for shard in index.shards) for side in range(len(index.shards[0].tokens))]
    shape = (index.n_rows, len(sums))
    if lengths.shape != shape or lengths.dtype != np.int32 or lengths.min(initial=0) < 0:
        raise DataError(f"{path} does not have the lengths of {count(index.n_rows, 'row')}", REBUILD)
    if lengths.sum(0, dtype="int64").tolist() != sums:
        raise DataError(f"{path} and {INDEX} have different numbers of tokens", REBUILD)
    return lengths


def use_built(folder: Path, data: Path) -> None:
    """Prepare a run on a built folder: copy its small splits, and point to its shards, which stay where they are."""
    index = read_index(folder)
    require_built(folder, tuple(name for name in SPLIT_FILES if name in index.files), index)
    data.mkdir(parents=True, exist_ok=True)
    with writing(data):
        for name in SPLIT_FILES:
            if (folder / name).is_file():
                shutil.copyfile(folder / name, data / name)
    write_pointer(data / "train.safetensors", folder)

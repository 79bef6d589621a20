"""The cache of engines on disk: compiled decoding steps, and models converted for CTranslate2.

    $CLEARFORMER_CACHE, else $XDG_CACHE_HOME/clearformer, else ~/.cache/clearformer
    └── engines/<key>/          key: a hash of everything that the engine depends on
        ├── engine.json         what it is, and the SHA-256 of every other file
        └── step.pt2, …

A compiled engine is machine code that this process will run. The folder must therefore belong to the user, and nobody
else may write to it. Engines never enter a run folder. All of them can be deleted at any time.
"""

import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from clearformer.checkpoint import write_json
from clearformer.errors import MachineError
from clearformer.toolchain import cache_home

RECORD = "engine.json"


def cache_folder() -> Path:
    """Return the folder of the engines, which may not exist."""
    return cache_home() / "engines"


def objection(folder: Path) -> str | None:
    """Return why the engines in a folder must not be run, or None if they may be."""
    if not hasattr(os, "getuid"):  # Windows: the profile of a user is private
        return None
    facts = folder.stat()
    if facts.st_uid != os.getuid():
        return f"{folder} belongs to another user"
    if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write to {folder}"
    return None


def key_of(facts: Mapping[str, Any]) -> str:
    """Return 32 hexadecimal digits that depend on every fact; the facts are JSON values."""
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def find(key: str, note: Callable[[str], None]) -> Path | None:
    """Return the folder of an engine, or None if there is none that may be used; `note` receives the reason."""
    folder = cache_folder()
    path = folder / key
    if not path.is_dir():
        return None
    reason = objection(folder) or objection(path) or damage(path, key)
    if reason is None:
        return path
    note(f"the compiled engine is ignored: {reason}")
    return None


def damage(path: Path, key: str) -> str | None:
    """Return what is wrong with the files of an engine, or None."""
    try:
        record = json.loads((path / RECORD).read_text(encoding="utf-8"))
        if key_of(record["facts"]) != key:
            return f"{path} is an engine for something else"
        for name, digest in record["files"].items():
            if digest_of(path / name) != digest:
                return f"{path / name} is damaged"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return f"{path} is incomplete"
    return None


def store(facts: Mapping[str, Any], write: Callable[[Path], None]) -> Path:
    """Let `write` fill a new folder, and put it into the cache under the key of the facts: complete, or not at all."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if reason := objection(folder):
            raise MachineError(f"the cache of engines cannot be used: {reason}", f"chmod 700 {folder}")
        sweep(folder)
        draft = Path(mkdtemp(prefix=".", dir=folder))
    except OSError as error:
        raise MachineError(f"{folder} cannot be written: {error}", "set CLEARFORMER_CACHE to another folder") from None
    path = folder / key_of(facts)
    try:
        write(draft)
        files = {file.name: digest_of(file) for file in sorted(draft.iterdir())}
        write_json(draft / RECORD, {"facts": dict(facts), "files": files})
        shutil.rmtree(path, ignore_errors=True)
        try:
            draft.rename(path)
        except OSError:  # another process was faster
            if damage(path, path.name) is not None:
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return path


def sweep(folder: Path, days: float = 1) -> None:
    """Remove the drafts that an interrupted process left behind."""
    for draft in folder.glob(".*"):
        if time.time() - draft.stat().st_mtime > days * 86400:
            shutil.rmtree(draft, ignore_errors=True)


def stored() -> list[dict[str, Any]]:
    """Return the facts of all engines in the cache."""
    return [facts for path in engine_folders() if (facts := facts_of(path)) is not None]


def engine_folders() -> Iterable[Path]:
    folder = cache_folder()
    return sorted(path for path in folder.iterdir() if not path.name.startswith(".")) if folder.is_dir() else []


def facts_of(path: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads((path / RECORD).read_text(encoding="utf-8"))["facts"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        digest = sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()

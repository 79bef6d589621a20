"""The cache of engines: complete or absent, found by its key, and only in a folder that others cannot write to."""

import json
import os
from pathlib import Path

import pytest

from clearformer.errors import MachineError
from clearformer.generation import engine_cache

FACTS = {"engine": "compiled", "width": 3, "model": {"d_model": 14}}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLEARFORMER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "engines"


def write(draft: Path) -> None:
    (draft / "step.pt2").write_bytes(b"machine code")


def find(facts: object = FACTS) -> tuple[Path | None, list[str]]:
    notes: list[str] = []
    return engine_cache.find(engine_cache.key_of(facts), notes.append), notes  # type: ignore[arg-type]


def test_the_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: Path) -> None:
    assert engine_cache.cache_folder() == folder
    monkeypatch.delenv("CLEARFORMER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert engine_cache.cache_folder() == tmp_path / "clearformer" / "engines"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert engine_cache.cache_folder() == tmp_path / ".cache" / "clearformer" / "engines"


def test_an_engine_is_found_by_its_facts_and_no_others(folder: Path) -> None:
    assert find() == (None, [])
    path = engine_cache.store(FACTS, write)
    assert path.parent == folder
    assert find() == (path, [])
    for other in ({**FACTS, "width": 2}, {**FACTS, "model": {"d_model": 15}}, {**FACTS, "torch": "2"}):
        assert find(other) == (None, [])
    assert engine_cache.stored() == [FACTS]
    assert engine_cache.store(FACTS, write) == path  # written once more, over the old one
    assert [entry.name for entry in folder.iterdir()] == [path.name]


def test_a_failed_build_leaves_nothing(folder: Path) -> None:
    def fail(draft: Path) -> None:
        write(draft)
        raise ValueError("no compiler")

    with pytest.raises(ValueError, match="no compiler"):
        engine_cache.store(FACTS, fail)
    assert list(folder.iterdir()) == []


def test_old_drafts_are_removed_and_new_ones_are_left(folder: Path) -> None:
    old, new = folder / ".old", folder / ".new"
    for draft in (old, new):
        draft.mkdir(parents=True, mode=0o700)
    folder.chmod(0o700)
    os.utime(old, (0, 0))
    engine_cache.store(FACTS, write)
    assert not old.exists()
    assert new.exists()


def test_damaged_incomplete_and_foreign_engines_are_ignored_with_a_note() -> None:
    path = engine_cache.store(FACTS, write)
    (path / "step.pt2").write_bytes(b"machine cod!")
    assert find() == (None, [f"the compiled engine is ignored: {path / 'step.pt2'} is damaged"])
    (path / "step.pt2").unlink()
    assert find() == (None, [f"the compiled engine is ignored: {path} is incomplete"])
    other = engine_cache.store({**FACTS, "width": 2}, write)
    engine_cache.store(FACTS, write)
    (path / "engine.json").write_text((other / "engine.json").read_text())
    assert find() == (None, [f"the compiled engine is ignored: {path} is an engine for something else"])
    (path / "engine.json").write_text(json.dumps([1]))
    assert find() == (None, [f"the compiled engine is ignored: {path} is incomplete"])


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs POSIX permissions")
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_can_write_to_is_refused(folder: Path, mode: int) -> None:
    path = engine_cache.store(FACTS, write)
    for at in (folder, path):
        at.chmod(mode)
        assert find() == (None, [f"the compiled engine is ignored: others may write to {at}"])
        at.chmod(0o700)
    assert find() == (path, [])
    folder.chmod(mode)
    with pytest.raises(MachineError, match="others may write to"):
        engine_cache.store(FACTS, write)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs POSIX permissions")
def test_a_folder_of_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine_cache.store(FACTS, write)
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    assert find() == (None, [f"the compiled engine is ignored: {folder} belongs to another user"])

"""checksums.json: a flipped bit in any file of a run is named; a log that grows, and a crash, are no faults."""

import errno
import os
from pathlib import Path

import pytest

from clearformer import checksums
from clearformer.checkpoint import RunFolder, remove, write_json, write_text
from clearformer.checksums import CHECKSUMS, faults, note, read, seal


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "recipe.toml").write_text("[model]\n")
    (tmp_path / "data" / "train.safetensors").write_bytes(bytes(range(200)))
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    (tmp_path / ".draft.json.7").write_text("")
    seal(tmp_path)
    return tmp_path


NAMES = ["recipe.toml", "data/train.safetensors", "metrics.jsonl"]


def flip(path: Path, bit: int = 77) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    path.write_bytes(data)


def test_every_file_has_a_checksum_but_temporary_ones(folder: Path) -> None:
    assert sorted(read(folder) or {}) == sorted(NAMES)
    assert faults(folder) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_flipped_bit_is_named(folder: Path, name: str) -> None:
    flip(folder / name)
    assert faults(folder) == [f"{folder / name} is not what was written: its checksum differs"]


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_and_a_shorter_file_are_named(folder: Path, name: str) -> None:
    size = (folder / name).stat().st_size
    os.truncate(folder / name, size - 1)
    assert faults(folder) == [f"{folder / name} has {size - 1:,} bytes instead of {size:,}"]
    (folder / name).unlink()
    assert faults(folder) == [f"{folder / name} is missing"]


def test_a_log_may_grow(folder: Path) -> None:
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 2}\n')
    assert faults(folder) == []
    seal(folder)
    flip(folder / "metrics.jsonl", 8 * 14)
    assert len(faults(folder)) == 1


def test_a_file_that_is_replaced_is_right_before_and_after(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And if the process ends between the two steps, either file is."""
    write_text(folder / "recipe.toml", "[train]\n")
    write_json(folder / "data" / "valid.json", [1, 2])
    assert faults(folder) == []
    assert "data/valid.json" in (read(folder) or {})
    draft = folder / ".recipe.toml.5"
    draft.write_text("[optim]\n")
    note(folder / "recipe.toml", draft)
    assert faults(folder) == []
    draft.rename(folder / "recipe.toml")
    assert faults(folder) == []
    flip(folder / "recipe.toml")
    assert len(faults(folder)) == 1


def test_unchanged_files_are_not_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    digest = checksums.digest
    monkeypatch.setattr(checksums, "digest", lambda path, n: seen.append(path.name) or digest(path, n))
    before = (folder / CHECKSUMS).read_bytes()
    seal(folder)
    assert seen == []
    assert (folder / CHECKSUMS).read_bytes() == before
    seal(folder, changed=None)
    assert sorted(seen) == ["metrics.jsonl", "recipe.toml", "train.safetensors"]


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', '{"a": {"bytes": 1, "sha256": [2]}}', "[" * 10**5])
def test_damaged_checksums_are_a_fault_themselves(folder: Path, content: str) -> None:
    (folder / CHECKSUMS).write_text(content)
    (fault,) = faults(folder)
    assert fault.startswith(f"{folder / CHECKSUMS} cannot be read")
    seal(folder)
    assert faults(folder) == []


def test_a_folder_without_checksums_gets_none_by_a_write(tmp_path: Path) -> None:
    write_text(tmp_path / "notes.txt", "x")
    assert not (tmp_path / CHECKSUMS).exists()
    assert faults(tmp_path) == []


def test_a_full_disk_is_cleaned_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checksums are dropped before a file is removed; if there is no room for the rest of them, afterwards."""
    write = checksums.write

    def write_if_there_is_room(folder: Path, table: checksums.Table) -> None:
        if (folder / "data" / "train.safetensors").exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(folder, table)

    monkeypatch.setattr(checksums, "write", write_if_there_is_room)
    remove(folder, ["data/train.safetensors"])
    assert sorted(read(folder) or {}) == ["metrics.jsonl", "recipe.toml"]
    assert faults(folder) == []


def test_parts_without_checksums_are_removed_from_a_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A save that failed has left them. Nothing is written, so that no room is needed."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for rank in (0, 1):
        (folder / f"last.save-3.rank-{rank}-of-2.safetensors").write_bytes(b"half")
    monkeypatch.setattr(checksums, "write", fail)
    RunFolder(folder).discard_unlisted()
    assert not [*folder.glob("last*")]
    assert faults(folder) == []

"""A disk without room: one sentence, and what was saved before can still be used."""

import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CliCall = Callable[..., Any]
MORE = ["--set", "train.steps=90", "--device", "cpu"]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(tmp_path)]
    if os.geteuid() or shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting needs root")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_loses_nothing(cli: CliCall, run: Path, disk: Path) -> None:
    folder = Path(shutil.copytree(run, disk / "run"))
    before = cli("translate", "-m", folder, "the dog sees a tree.").out
    filler = disk / "filler"
    free = os.statvfs(disk)
    filler.write_bytes(bytes(free.f_bavail * free.f_frsize))

    code, out, err = cli("train", "--resume", "--out", folder, *MORE)
    assert (code, out) == (1, "")
    complaint = err[err.index("error: ") :]
    assert "disk is full" in complaint or "No space left" in complaint
    assert "free some space; files saved earlier are intact" in complaint
    assert "Traceback" not in err
    assert cli("translate", "-m", folder, "the dog sees a tree.").out == before

    filler.unlink()
    assert cli("train", "--resume", "--out", folder, *MORE).code == 0


def test_a_training_that_never_fits(cli: CliCall, corpus: Path, disk: Path, small: list[str]) -> None:
    (disk / "filler").write_bytes(bytes(4 * 2**20 - 3 * 4096))
    code, out, err = cli("train", "--pairs", corpus, *small, "--out", disk / "run", "--device", "cpu")
    assert (code, out) == (1, "")
    assert "free some space" in err
    assert "Traceback" not in err


def test_a_limit_on_file_size_comes_to_the_same(cli: CliCall, copy: Path) -> None:
    before = (copy / "last.safetensors").read_bytes()
    with no_file_larger_than(len(before) // 2):
        code, out, err = cli("train", "--resume", "--out", copy, *MORE)
    assert (code, out) == (1, "")
    assert "last.safetensors cannot be written" in err or "model.safetensors cannot be written" in err
    assert "\nhint: free some space" in err
    assert (copy / "last.safetensors").read_bytes() == before

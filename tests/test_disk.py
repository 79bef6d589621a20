"""Files are complete or absent; after a rename the folder is flushed; modes follow the umask."""

import os
import resource
import stat
from pathlib import Path

import pytest
import torch

import clearformer
from clearformer.checkpoint import save_tensors
from clearformer.data.tensor_file import TensorFileWriter, TensorSpec
from clearformer.disk import atomically, write_text
from clearformer.errors import MachineError
from clearformer.loading.write import new_folder, require_empty


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of everything that is flushed or renamed, in order."""
    seen: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(
        os, "fsync", lambda file: (seen.append(Path(f"/proc/self/fd/{file}").resolve().name), fsync(file))
    )
    monkeypatch.setattr(os, "replace", lambda a, b: (seen.append(f"-> {Path(b).name}"), replace(a, b)))
    return seen


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_the_folder_is_flushed_after_a_rename(tmp_path: Path, flushed: list[str]) -> None:
    write_text(tmp_path / "a.txt", "a")
    assert flushed[1:] == ["-> a.txt", tmp_path.name]
    flushed.clear()
    writer = TensorFileWriter(tmp_path / "b.safetensors", {"x": TensorSpec("int32")})
    writer.join()
    assert flushed[1:] == ["-> b.safetensors", tmp_path.name]
    flushed.clear()
    with new_folder(tmp_path / "out") as draft:
        (draft / "c.txt").write_text("c")
    assert flushed[0] == "c.txt"
    assert flushed[-2:] == ["-> out", tmp_path.name]


@pytest.mark.parametrize("umask", [0o027, 0o002])
def test_modes_follow_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        pairs = [(f"a {i}", f"b {i}") for i in range(40)]
        settings = ["model.d_model=8", "model.d_ff=8", "text.shared=true", "text.vocab_size=25"]
        clearformer.train(pairs=pairs, out=tmp_path / "run", steps=1, settings=settings, exportable=True, device="cpu")
        clearformer.export_model(tmp_path / "run", tmp_path / "hub")
        clearformer.import_model(tmp_path / "hub", tmp_path / "again")
        clearformer.plot("positions", out=tmp_path / "figure.png")
    finally:
        os.umask(before)
    paths = list(tmp_path.rglob("*"))
    assert {path.suffix for path in paths} >= {".safetensors", ".toml", ".json", ".jsonl", ".png"}
    for path in paths:
        expected = (0o777 if path.is_dir() else 0o666) & ~umask
        assert oct(stat.S_IMODE(path.stat().st_mode)) == oct(expected), path


def test_a_figure_that_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(MachineError, match="the disk is full"):
            clearformer.plot("positions", out=tmp_path / "figure.png")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())


def test_a_new_folder_is_complete_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    with pytest.raises(IsADirectoryError), new_folder(out) as draft:
        draft.read_text()
    assert not list(tmp_path.iterdir())
    (tmp_path / ".out.1").mkdir()  # of a killed process
    out.mkdir()
    with new_folder(out) as draft, new_folder(out.with_name("other")) as second:
        (draft / "one").touch()
        (second / "two").touch()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["one", "other", "out", "two"]
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    with new_folder(Path()) as draft:
        save_tensors(draft / "x.safetensors", {"x": torch.zeros(1)})
    assert [path.name for path in Path.cwd().iterdir()] == ["x.safetensors"]
    require_empty(tmp_path / "new")


def test_nobody_removes_the_draft_of_a_living_process(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with new_folder(out) as draft:
        other = draft.rename(draft.with_name(".out.4"))  # as if another process wrote it; its lock is kept
        with new_folder(out):
            assert other.exists()
        other.rename(draft)
        out.rmdir()
    assert out.exists()


def test_a_draft_is_removed_if_writing_fails(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="cannot be written"), atomically(tmp_path / "x"):
        raise OSError(5, "broken")
    assert not list(tmp_path.iterdir())

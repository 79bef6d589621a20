import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clearformer.toolchain import keep_compiled_code

COMMAND = """
import sys
from clearformer.cli import main
sys.argv = ["clearformer", "--version"]
try:
    main()
except SystemExit:
    import torch._dynamo
"""


def test_a_command_leaves_no_folder_of_torch_among_temporary_files(tmp_path: Path) -> None:
    temporary, cache = tmp_path / "tmp", tmp_path / "cache"
    temporary.mkdir()
    places = {"TMPDIR": str(temporary), "CLEARFORMER_CACHE": str(cache)}
    environment = {key: value for key, value in os.environ.items() if key != "TORCHINDUCTOR_CACHE_DIR"}
    subprocess.run([sys.executable, "-c", COMMAND], check=True, env={**environment, **places})
    assert not list(temporary.iterdir())
    assert (cache / "inductor").is_dir()


def test_a_cache_that_cannot_be_written_changes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CLEARFORMER_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    keep_compiled_code()
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ


def test_without_a_home_torch_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setenv("CLEARFORMER_CACHE", "~nobody-has-this-name/cache")
    keep_compiled_code()
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ


def test_in_a_folder_that_may_not_be_searched_torch_chooses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Root may search all folders, so that this is an error of the system made by hand."""

    def refuse(path: Path) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setenv("CLEARFORMER_CACHE", str(tmp_path))
    with monkeypatch.context() as closed:
        closed.setattr(Path, "exists", refuse)
        keep_compiled_code()
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ


def test_the_folder_that_a_user_chose_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CLEARFORMER_CACHE", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "mine")
    keep_compiled_code()
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "mine"

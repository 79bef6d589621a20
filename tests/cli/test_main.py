"""What every verb shares: versions, plugins, and how a run may end."""

import errno
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clearformer.cli import machine_error
from clearformer.version import __version__

CliCall = Callable[..., Any]


def test_starting_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'numpy', 'pydantic', 'tokenizers', 'matplotlib', 'rich'}"
    code = f"import sys, clearformer.cli; print(*({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


def test_version(cli: CliCall) -> None:
    assert cli("--version") == (0, f"clearformer {__version__}\n", "")


def test_a_misspelt_verb_or_option_is_a_usage_error(cli: CliCall) -> None:
    verb, option = cli("trian"), cli("train", "--pair", "x.tsv")
    assert (verb.code, option.code) == (2, 2)
    assert verb.out == option.out == ""
    assert "train" in verb.err
    assert "--pairs" in option.err


def test_a_plugin_that_is_not_there(cli: CliCall) -> None:
    code, out, err = cli("--plugin", "no_such_plugin", "doctor")
    assert (code, out) == (1, "")
    assert err.startswith("error: --plugin no_such_plugin: there is no such module\nhint: ")


def test_a_bug_in_a_plugin_keeps_its_traceback(cli: CliCall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "half_a_plugin.py").write_text("import no_such_dependency\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        cli("--plugin", "half_a_plugin", "doctor")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_disk_that_takes_no_more_is_said_to_be_full(number: int) -> None:
    error = machine_error(OSError(number, "no room", "runs/x/metrics.jsonl"))
    assert str(error) == "runs/x/metrics.jsonl: no room\nhint: free some space; files saved earlier are intact"
    assert "permissions" in str(machine_error(PermissionError(errno.EACCES, "denied", "runs")))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written(start: CliCall) -> None:
    with open("/dev/full", "wb") as full, start("doctor", stdout=full, stderr=subprocess.PIPE) as process:
        err = process.communicate()[1].decode()
    assert process.returncode == 1
    assert err == (
        "error: cannot write: No space left on device\nhint: free some space; files saved earlier are intact\n"
    )


def test_a_reader_that_closes_the_pipe_ends_it_silently(start: CliCall, run: Path) -> None:
    with start("translate", "-m", run, stdin=-1, stdout=-1, stderr=-1) as process:
        process.stdin.write(b"the dog sees a tree.\n")
        process.stdin.flush()
        assert process.stdout.readline() != b""  # streams: the answer comes while stdin is open
        process.stdout.close()
        process.stdin.write(b"the cat likes a book.\n")
        process.stdin.flush()
        assert (process.wait(timeout=60), process.stderr.read()) == (0, b"")


def test_ctrl_c_is_one_sentence(start: CliCall, run: Path) -> None:
    with start("translate", "-m", run, stdin=-1, stdout=-1, stderr=-1) as process:
        process.stdin.write(b"the dog sees a tree.\n")
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert process.stderr.read() == b"interrupted; files written earlier are intact\n"

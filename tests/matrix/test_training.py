"""Every kind of file × every task × (command line, Python): one step of training, or one sentence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import clearformer
from clearformer.errors import ClearformerError

from .cells import REASONS, TASKS, documented, examples, expected, is_sorted, require_sentence, stored
from .kinds import KINDS, N, columns, row_of, write, write_wavs

pytestmark = pytest.mark.matrix


def written(kind: str, task: str, folder: Path) -> Path:
    data = TASKS[task].data
    path = write(kind, folder, columns(data, kind))
    if data == "recordings":
        write_wavs(path.parent)
    return path


def train_by_command(cli: Callable[..., Any], task: str, path: Path, out: Path) -> str:
    flag, _, _, settings, model = TASKS[task]
    sets = [word for setting in settings for word in ("--set", setting)]
    named = ["--model", model] if model else []
    result = cli(
        "train", f"--{flag}", path, "--valid", path, "--out", out, "--device", "cpu", *named, *sets
    )  # fmt: skip
    assert (result.code == 0) == ("error: " not in result.err), result.err
    return str(result.err)


def train_in_python(task: str, data: Any, out: Path, valid: Any = None) -> dict[str, Any]:
    flag, _, _, settings, model = TASKS[task]
    splits = {flag: data, "valid": data if valid is None else valid}
    return clearformer.train(**splits, out=out, settings=settings, model=model, device="cpu")


def check(task: str, kind: str, out: Path, printed: str) -> None:
    """All examples are there, and one of each was trained on."""
    ours, theirs = examples(out), expected(task, kind)
    assert (sorted(ours) if is_sorted(task) else ours) == theirs
    assert stored(printed) == len(theirs)
    assert (out / "model.safetensors").is_file()


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["command", "python"])
def test_a_file_is_trained_on_or_refused(
    way: str, kind: str, task: str, cli: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict = documented()[row_of(kind)][TASKS[task].title]
    if verdict == "–":
        pytest.skip("no such data")
    path, out = written(kind, task, tmp_path / "data"), tmp_path / "run"
    error = None
    if way == "command":
        printed = train_by_command(cli, task, path, out)
        error = printed.partition("error: ")[2] or None
    else:
        capsys.readouterr()
        try:
            assert train_in_python(task, path, out)["steps"] == 1
        except ClearformerError as refusal:
            error = str(refusal)
        printed = capsys.readouterr().err
    if verdict == "yes":
        assert error is None, error
        check(task, kind, out, printed)
    else:
        assert error is not None
        require_sentence(error, REASONS[verdict.removeprefix("no")])
        assert not (out / "model.safetensors").exists()


def test_every_row_and_column_of_the_table_is_tested() -> None:
    table = documented()
    assert {row_of(kind) for kind in KINDS} == table.keys()
    for row in table.values():
        assert row.keys() == {*(task.title for task in TASKS.values()), "`--input`"}
        assert all(cell in ("yes", "–") or cell.removeprefix("no") in REASONS for cell in row.values())
    assert N > 20

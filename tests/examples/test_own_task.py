"""A user's own task, from outside the package: its own flag, data, zero configuration, metrics, handle and verbs."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import clearformer
from clearformer.cli import app
from clearformer.models import MODELS
from clearformer.tasks import TASKS

EXAMPLES = Path(__file__).parents[2] / "examples"
COMPARISON = """
seeds = [0]
[budget]
steps = 20
[contenders]
narrow = { recipe = "table.toml", settings = ["model.d_hidden=2"] }
wide = { recipe = "table.toml" }
"""


@pytest.fixture(autouse=True)
def beside_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in a folder that holds own_task.py and a table, and forget the task afterwards."""
    (tmp_path / "own_task.py").write_text((EXAMPLES / "own_task.py").read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setattr(MODELS, "added", {})
    monkeypatch.setattr(TASKS, "added", {})
    write_table(Path("points.csv"), 211, 1)
    write_table(Path("more.csv"), 53, 2)
    yield
    sys.modules.pop("own_task", None)


def write_table(path: Path, n: int, seed: int) -> None:
    """Points of the plane, inside or outside a circle."""
    draw = Random(seed)
    rows = [(draw.uniform(-1, 1), draw.uniform(-1, 1)) for _ in range(n)]
    lines = (f"{x:.4f},{y:.4f},{'in' if x * x + y * y < 0.6 else 'out'}\n" for x, y in rows)
    path.write_text("x,y,where\n" + "".join(lines), encoding="utf-8")


def run(*arguments: str, code: int = 0) -> None:
    with pytest.raises(SystemExit) as stop:
        app(["--plugin", "own_task", *arguments])
    assert stop.value.code == code


def test_every_verb_knows_it(capsys: pytest.CaptureFixture[str]) -> None:
    run("train", "--table", "points.csv", "--out", "run", "--device", "cpu", "--json")
    report = json.loads(capsys.readouterr().out)
    assert report["rows"] > 0
    assert report["valid"]["accuracy"] > 0.8
    run("evaluate", "--model", "run", "--table", "more.csv", "--json", "--device", "cpu")
    scores = json.loads(capsys.readouterr().out)
    assert (scores["rows"], scores["accuracy"] > 0.8) == (53, True)
    run("evaluate", "--model", "run", "--table", "more.csv", "--device", "cpu")
    assert "53 rows" in capsys.readouterr().out
    run("classify", "--model", "run", "0.0,0.0", "0.9,0.9")
    assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()] == ["in", "out"]
    handle = clearformer.load("run")
    assert handle.kind == "a classifier of table rows"
    run("translate", "--model", "run", "hello", code=1)
    assert "run is a classifier of table rows" in capsys.readouterr().err
    run(
        "train",
        "--resume",
        "--out",
        "run",
        "--set",
        "train.steps=10000",
        "--set",
        "train.patience=1",
        "--device",
        "cpu",
    )
    run("train", "--help")
    assert "--table FILE" in capsys.readouterr().out


def test_python_takes_its_flag_as_a_keyword() -> None:
    import own_task  # noqa: F401

    short = ["train.steps=20", "train.validate_every=20"]
    report = clearformer.train(table="points.csv", out="run", settings=short, device="cpu")
    assert report["steps"] == 20
    assert clearformer.evaluate("run", table="more.csv", device="cpu")["rows"] == 53


@pytest.mark.slow
def test_it_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    run("train", "--table", "points.csv", "--dry-run")
    Path("table.toml").write_text(capsys.readouterr().out, encoding="utf-8")
    Path("compare.toml").write_text(COMPARISON, encoding="utf-8")
    run("compare", "compare.toml", "--out", "runs", "--device", "cpu", "--json")
    results = json.loads(capsys.readouterr().out)
    assert results["metric"] == "accuracy"
    assert {row["name"] for row in results["table"]} == {"narrow", "wide"}


def test_what_only_one_flag_takes_is_refused_with_another(capsys: pytest.CaptureFixture[str]) -> None:
    run("train", "--table", "points.csv", "--columns", "0,1", code=1)
    assert "--columns is an option for --pairs, not for --table" in capsys.readouterr().err

"""bench: results are saved after each row, by Ctrl-C too, and say how they were made."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import clearformer
from clearformer.errors import ConfigError
from clearformer.speed import rows
from clearformer.speed.rows import Engine, Row

MODULE = """
def steady(context, value):
    return {"values": [value]}

def broken(context):
    raise ValueError("the frobnicator is missing")
"""


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three quick rows in place of the real ones: one that works, one that fails, one that needs a GPU."""
    (tmp_path / "quick_rows.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(clearformer.__file__).parents[1]}")
    good, peer = (Engine(name, name, "quick_rows:steady", {"value": 2.0}) for name in ("here", "peer"))
    bad = Engine("here", "here", "quick_rows:broken")
    quick = Row("good", "work", "cpu", good, (peer,)), Row("bad", "work", "cpu", bad), Row("gpu", "w", "cuda", good)
    monkeypatch.setattr(rows, "ROWS", quick)
    monkeypatch.setattr("clearformer.verbs.bench.examine_cuda", lambda: {"devices": []})
    return tmp_path / "bench.json"


def run(out: Path, say: Callable[[str], None] = print, **options: Any) -> dict[str, Any]:
    results: dict[str, Any] = clearformer.bench(quick=True, out=out, say=say, **options)
    return results


def test_results_are_written_after_each_row(table: Path) -> None:
    seen: dict[str, list[str]] = {}

    def say(line: str) -> None:
        if " of 3)" in line or "no GPU" in line:
            seen[line.split()[0]] = list(json.loads(table.read_text())["rows"]) if table.exists() else []

    results = run(table, say)
    assert seen == {"good": [], "bad": ["good"], "gpu": ["good", "bad"]}
    assert json.loads(table.read_text()) == results


def test_a_failing_row_does_not_end_the_run(table: Path) -> None:
    results = run(table)["rows"]
    assert results["good"]["ratios"] == {"peer": 1.0}
    assert results["bad"]["error"] == "ValueError: the frobnicator is missing"
    assert results["gpu"]["skipped"] == "there is no GPU"


def test_results_say_how_they_were_made(table: Path) -> None:
    results = run(table, only=["good"], command="clearformer bench --quick")
    assert results["command"] == "clearformer bench --quick"
    assert {"commit", "date"} <= results.keys()
    assert {"torch", "clearformer", "python", "device"} <= results["versions"].keys()
    (ceiling,) = results["ceilings"]
    assert ceiling["matmul_tflops"] > 0
    assert ceiling["memory_gb_per_s"] > 0
    assert ceiling["dispatch_us"] > 0
    assert list(results["rows"]) == ["good"]


def test_ctrl_c_keeps_the_rows_so_far(table: Path) -> None:
    def say(line: str) -> None:
        if line.startswith("bad"):
            raise KeyboardInterrupt

    results = run(table, say)
    assert results["interrupted"]
    assert list(results["rows"]) == ["good"]
    assert json.loads(table.read_text()) == results


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"only": ["god"]}, r"--only god: there is no such row\nhint: did you mean `good`\?"),
        ({"nanogpt": "nowhere"}, "--nanogpt nowhere: there is no such folder"),
        ({"nanogpt": "."}, r"--nanogpt \.: it has no model\.py"),
        ({"data": "nowhere"}, "--data nowhere: there is no such folder"),
    ],
)
def test_wrong_arguments(table: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(table, **options)
    assert not table.exists()

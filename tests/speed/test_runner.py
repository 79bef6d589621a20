"""Sides take turns in separate processes; a failure stays inside its row, and a process never outlives its limit."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from clearformer.speed import runner
from clearformer.speed.context import Context, summary
from clearformer.speed.rows import SECONDS, Row
from clearformer.speed.runner import agreement, curves, measure_row

Build = Callable[..., Any]


def measured(row: Row, context: Context, repeats: int = 1) -> tuple[dict[str, Any], list[str]]:
    lines: list[str] = []
    return measure_row(row, context, repeats, lines.append), lines


def assert_ended(process: int) -> None:
    """Wait up to ten seconds for a process that is not our child; a zombie has ended."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{process}/stat").read_text().split()[2]
        except OSError:
            return
        if state == "Z":
            return
        time.sleep(0.1)
    os.kill(process, 9)
    pytest.fail("the child of the measurement still runs")


def test_sides_take_turns(row: Build, context: Context) -> None:
    entry, _ = measured(row(), context, repeats=2)
    assert Path(context.work, "turns.txt").read_text().split() == ["here", "other", "here", "other"]
    assert entry["engines"]["here"]["values"] == [30, 20, 40, 30, 20, 40]
    assert entry["engines"]["here"]["median"] == 30
    assert entry["engines"]["here"]["range"] == [20, 40]
    assert entry["ratios"] == {"other": 3.0}  # 30 / 10


def test_a_ratio_above_one_means_faster_for_seconds_too(row: Build, context: Context) -> None:
    entry, _ = measured(row(unit=SECONDS), context)
    assert entry["ratios"] == {"other": 0.333}  # 10 s / 30 s


def test_a_peer_that_is_not_installed_is_named_and_skipped(row: Build, engine: Build, context: Context) -> None:
    absent = engine("absent", packages=("no_such_library",), values=[1.0])
    entry, lines = measured(row(peers=(absent, engine("other", values=[10.0]))), context)
    assert entry["engines"]["absent"] == {"title": "Absent", "skipped": "no_such_library not installed"}
    assert "work: Absent is skipped: no_such_library not installed" in lines
    assert entry["ratios"] == {"other": 3.0}


def test_nanogpt_needs_its_checkout(context: Context) -> None:
    from clearformer.speed.rows import ROWS

    (peer,) = next(row for row in ROWS if row.name == "train-gpt2").peers
    assert runner.why_not(peer, context) == "give its checkout with --nanogpt"


def test_a_peer_that_fails_is_reported(row: Build, engine: Build, context: Context) -> None:
    entry, _ = measured(row(peers=(engine("bad", "broken"), engine("other", values=[10.0]))), context, repeats=2)
    assert entry["engines"]["bad"] == {"title": "Bad", "error": "ValueError: the frobnicator is missing"}
    assert entry["ratios"] == {"other": 3.0}
    assert "error" not in entry


def test_a_row_whose_own_side_fails_runs_no_peers(row: Build, engine: Build, context: Context) -> None:
    entry, lines = measured(row(here=engine("here", "broken")), context)
    assert entry["error"] == "ValueError: the frobnicator is missing"
    assert "ratios" not in entry
    assert "other" not in entry["engines"]
    assert "work: clearformer failed: ValueError: the frobnicator is missing" in lines


def test_a_process_that_takes_too_long_ends_with_its_children(
    row: Build, engine: Build, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(runner.LIMITS, True, 3)
    entry, _ = measured(row(here=engine("here", "endless"), peers=()), context)
    assert entry["error"] == "it took more than 3 s"
    assert_ended(int(Path(context.work, "child").read_text()))


def test_the_better_number_of_threads_counts(row: Build, engine: Build, context: Context) -> None:
    entry, _ = measured(row(here=engine("here", "by_threads", values=[8.0]), peers=(), by_threads=True), context)
    assert entry["engines"]["here"]["threads"] == 1
    assert entry["engines"]["here"]["by_threads"] == {"1": 8.0, "2": 4.0}
    assert entry["engines"]["here"]["median"] == 8


def test_tokens_are_compared_and_not_saved(row: Build, engine: Build, context: Context) -> None:
    here = engine("here", values=[1.0], tokens=[[5, 6], [7, 8]])
    entry, _ = measured(row(here=here, peers=(engine("other", values=[1.0], tokens=[[5, 6], [7, 9]]),)), context)
    assert entry["engines"]["other"]["same_tokens"] == 0.75
    assert "tokens" not in entry["engines"]["here"]


def test_agreement() -> None:
    assert agreement([[1, 2, 3]], [[1, 2, 3]]) == 1
    assert agreement([[1, 2], [3, 4]], [[1, 0], [0, 0]]) == 0.25


def test_loss_curves_are_compared_over_the_same_steps() -> None:
    ours = [[2, 5.0], [4, 4.0], [6, 3.5]]  # means over steps 1–2, 3–4, 5–6
    theirs = [[1, 6.0], [2, 5.0], [3, 4.5], [4, 3.5], [5, 3.0]]  # step 6 is missing
    assert curves(ours, "other", theirs) == {"step": [2, 4], "here": [5.0, 4.0], "other": [5.5, 4.0]}


def test_a_summary_has_four_digits() -> None:
    assert summary([123_456.0, 1.00004, 3.0])["range"] == [1.0, 123_500.0]
    assert summary([1.0, 2.0])["median"] == 1.5


def test_a_worker_ends_with_its_parent(context: Context) -> None:
    """Even if the parent is killed, which no handler can notice."""
    code = "import sys; from clearformer.speed.runner import run_job; from clearformer.speed.context import Context; "
    code += "from clearformer.speed.rows import Engine; import json; job = json.loads(sys.argv[1]); "
    code += "run_job(Engine('here', 'here', 'pretend:endless', {'name': 'here'}), Context(**job))"
    parent = subprocess.Popen([sys.executable, "-c", code, json.dumps(asdict(context))])
    child = Path(context.work, "child")
    while not child.exists() or not child.read_text():
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    assert_ended(int(child.read_text()))

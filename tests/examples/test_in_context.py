"""The experiments of the notes: what they ask is right, and they run from end to end in miniature."""

import importlib.util
import json
import random
import sys
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for `python examples/….py`, which finds what lies beside it."""
    monkeypatch.syspath_prepend(EXAMPLES)


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_line_tells_one_task() -> None:
    context = example("in_context_learning")
    for is_test in (False, True):
        for seed in range(50):
            sums = context.sums(random.Random(seed), is_test)
            assert len({int(c) - sum(map(int, ab.split())) for ab, c in sums}) == 1
            letters = context.letters(random.Random(seed), is_test)
            assert all(sorted(moved) == sorted(word) for moved, word in letters)
            words = context.words(random.Random(seed), is_test)
            assert len(dict(words)) == len(set(words))  # a dictionary: one meaning a word


def test_no_task_of_the_test_is_trained_on() -> None:
    context = example("in_context_learning")

    def offsets(is_test: bool) -> set[int]:
        lines = [context.sums(random.Random(seed), is_test)[0] for seed in range(300)]
        return {int(c) - sum(map(int, ab.split())) for ab, c in lines}

    assert offsets(True).isdisjoint(offsets(False))
    assert len(offsets(False)) == 15


def test_a_sum_written_out_is_the_sum() -> None:
    thought = example("chain_of_thought")
    assert thought.step_by_step(347, 589) == "347+589=7+9+0:16 4+8+1:13 3+5+1:9 936"
    for a, b in thought.sums(range(2, 6), 200, seed=3):
        *steps, total = thought.step_by_step(a, b).split("=")[1].split(" ")
        assert int(total) == a + b == int(thought.straight(a, b).split("=")[1])
        written = [step.split(":")[1] for step in steps]
        digits = [value[-1] for value in written[:-1]]
        assert int(written[-1] + "".join(reversed(digits))) == a + b


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "more", "figure"),
    [
        ("in_context_learning", ["--tasks", "7"], "in-context.png"),
        ("chain_of_thought", ["--sums", "7"], "chain-of-thought.png"),
    ],
)
def test_an_experiment_runs_from_end_to_end(
    name: str, more: list[str], figure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--small", "--steps", "10", "--out", str(tmp_path), *more])
    found = example(name).main()
    assert (tmp_path / figure).exists()
    saved = json.loads((tmp_path / "accuracies.json").read_text())
    assert all(saved[key] == shares and all(0 <= share <= 1 for share in shares) for key, shares in found.items())

"""A comparison of two small models on the bundled corpus, trained for real, each in a process of its own."""

import json
import os
import re
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

import clearformer
from clearformer.checkpoint import RunFolder
from clearformer.comparison.page import cells, page
from clearformer.errors import CheckpointError, ConfigError, DataError, MachineError
from clearformer.metric import BLEU, LOSS
from clearformer.models import MODELS
from clearformer.plots import plot_comparison
from clearformer.recipe import Recipe
from clearformer.tasks import TASKS
from clearformer.verbs.apart import train_apart
from clearformer.verbs.compare import common_metric, reached, seconds_per_step, table

DEMO = Path(clearformer.__file__).parent / "bundled" / "demo.toml"
SMALL = [
    "model.n_encoder_layers=1", "model.n_decoder_layers=1", "model.d_model=28", "model.d_ff=46", "model.n_heads=2",
    "train.tokens=512", "train.log_every=5", "train.validate_every=10", "train.save_every=10",
    "evaluate.max_validation=11", "model.max_length=67", "data.filter.max_tokens=61",
]  # fmt: skip
COMPARISON = f"""
goal = 0.0
bundled = 200
settings = {json.dumps(SMALL)}
budget = {{ steps = 20 }}
[contenders]
two = {{ recipe = "{DEMO}" }}
one = {{ recipe = "{DEMO}", settings = ["model.n_heads=1"] }}
"""


def write(folder: Path, text: str = COMPARISON) -> Path:
    file = folder / "small.toml"
    file.write_text(text)
    return file


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "OMP_NUM_THREADS", "1")
        clearformer.compare(write(folder), folder / "out", device="cpu", at_once=2)
    return folder / "out"


@pytest.fixture
def results(out: Path) -> dict[str, Any]:
    return json.loads((out / "results.json").read_text())


@pytest.mark.slow
def test_runs_are_ordinary_and_told_whole(out: Path, results: dict[str, Any]) -> None:
    for name, [run] in results["runs"].items():
        report = json.loads((out / f"{name}-0" / "report.json").read_text())
        assert run["score"] == report["test"]["bleu"]
        assert (run["steps"], run["parameters"]) == (20, report["parameters"])
        assert run["peak_mb"] > 50
        assert run["curve"]["step"] == [10, 20]
        assert sum(group["sentences"] for group in run["by_length"]) == 500
        assert run["reached"]["step"] == 10  # any BLEU is as good as 0
    assert clearformer.load(out / "one-0", "cpu").translate(["The cat sleeps"]) is not None
    assert {row["name"] for row in results["table"]} == {"one", "two"}
    assert results["side_by_side"] == 2


@pytest.mark.slow
def test_the_page_needs_nothing_else(out: Path, results: dict[str, Any]) -> None:
    text = (out / "page.html").read_text()
    assert text.count("<svg") == 1
    assert not re.search(r"<(script|link|img|iframe|object)|@import|url\((?!#)", text)
    for cell in (cell for row in cells(results) for cell in row):
        assert cell in text
    again = plot_comparison(results, out.parent / "again.svg").read_text()
    assert again[again.index("<svg") :] in text


@pytest.mark.slow
def test_given_again_it_goes_on_where_it_was_cut_off(out: Path, results: dict[str, Any]) -> None:
    """One run has lost its report, as if killed at its last checkpoint; the other is not touched."""
    (out / "two-0" / "report.json").unlink()
    before = (out / "one-0" / "last.safetensors").stat().st_mtime_ns
    again = clearformer.compare(out.parent / "small.toml", out, device="cpu")
    assert [run["score"] for run in again["runs"]["two"]] == [run["score"] for run in results["runs"]["two"]]
    assert (out / "one-0" / "last.safetensors").stat().st_mtime_ns == before


@pytest.mark.slow
def test_another_comparison_is_not_mixed_in(out: Path, tmp_path: Path) -> None:
    other = write(tmp_path, COMPARISON.replace("steps = 20", "steps = 30"))
    with pytest.raises(CheckpointError, match="contains the runs of another comparison"):
        clearformer.compare(other, out, device="cpu")


def recipe_of(tmp_path: Path, *settings: str) -> Recipe:
    return Recipe.read(DEMO, [f"data.root={tmp_path}", *settings])


@pytest.mark.slow
def test_a_trainings_complaint_comes_back_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"train\.tsv"):
        train_apart(recipe_of(tmp_path), RunFolder(tmp_path / "run"), "cpu")


@pytest.mark.slow
def test_a_training_that_is_killed_is_said_to_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearformer.verbs.apart.train_here", fall_over)
    with pytest.raises(MachineError, match=r"run stopped with exit code 7\nhint: repeat the command"):
        train_apart(recipe_of(tmp_path), RunFolder(tmp_path / "run"), "cpu")


def fall_over(outgoing: Connection, given: dict[str, Any], threads: int | None) -> None:
    os._exit(7)


def test_different_scores_are_not_compared() -> None:
    def recipe(metric: str) -> Recipe:
        return Recipe.parse({"data": {"train": {"path": "a.tsv"}}, "train": {"metric": metric}}, "x.toml")

    assert common_metric({"a": recipe("chrf"), "b": recipe("chrf")}).name == "chrf"
    with pytest.raises(ConfigError, match="by different metrics: chrf and loss"):
        common_metric({"a": recipe("chrf"), "b": recipe("loss")})


@pytest.mark.parametrize("task", TASKS.names())
def test_every_task_says_which_score_decides(task: str) -> None:
    """The metrics of some tasks depend on the recipe: a regression has no accuracy."""
    kinds = {"classification": "classifier", "token-classification": "classifier", "sentence-score": "bert"}
    models = {MODELS.resolve(kind).task: kind for kind in MODELS.names()}  # type: ignore[attr-defined]
    model = {"kind": kinds.get(task) or models.get(task) or {"prefix-lm": "gpt", "span-corruption": "t5"}[task]}
    if model["kind"] == "classifier":
        model["base"] = {"kind": "bert"}
        model["pooling"] = "none" if task == "token-classification" else "mean"
    tables = {"data": {"train": {"path": "a.tsv"}}, "model": model, "objective": {"kind": task}}
    recipe = Recipe.parse(tables, "x.toml")
    metric = common_metric({"a": recipe, "b": recipe})
    assert metric in TASKS.resolve(task).metrics(recipe)


@pytest.mark.slow
def test_text_classifiers_are_compared_by_accuracy(tmp_path: Path) -> None:
    words = ("good fine great", "bad dull poor")
    rows = [f"{word} {i}\t{'ab'[k]}\n" for i in range(20) for k in (0, 1) for word in words[k].split()]
    (tmp_path / "reviews.tsv").write_text("".join(rows))
    small = ["model.n_layers=1", "model.d_model=14", "model.d_ff=11", "model.n_heads=2", "model.max_length=31"]
    recipe = clearformer.plan(
        labels=tmp_path / "reviews.tsv",
        model="bert",
        settings=[setting.replace("model.", "model.base.") for setting in small]
        + ["train.tokens=128", "train.log_every=2", "train.validate_every=2"],
        device="cpu",
    )
    (tmp_path / "a.toml").write_text(recipe.dump())
    (tmp_path / "c.toml").write_text("budget.steps = 4\ngoal = 0.0\ncontenders.a.recipe = 'a.toml'\n")
    results = clearformer.compare(tmp_path / "c.toml", tmp_path / "out", device="cpu")
    [run] = results["runs"]["a"]
    assert (results["metric"], results["unit"], run["unit"]) == ("accuracy", "examples", "examples")
    assert 0 <= run["score"] <= 1
    assert (run["reached"]["step"], run["by_length"]) == (2, None)


def write_run(folder: Path, unit: str) -> RunFolder:
    """Two log lines at 100 and 300 tokens a second, one at 200; 50 tokens a step: a quarter of a second each."""
    speeds = enumerate((100, 200, 300), 1)
    rows: list[dict[str, Any]] = [{"step": 10 * i, "kind": "train", f"{unit}_per_s": speed} for i, speed in speeds]
    rows += [{"step": 10 * i, "kind": "valid", "bleu": 7.0 * i, "loss": 5.0 - i} for i in (1, 2, 3)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "report.json").write_text(
        json.dumps({unit: 1500, "steps": 30, "best_step": 30, "seed": 0, "seconds": 9.0})
    )
    return RunFolder(folder)


@pytest.mark.parametrize("unit", ["tokens", "examples", "images"])
def test_the_goal_is_reached_by_the_first_validation_that_is_as_good(tmp_path: Path, unit: str) -> None:
    run = write_run(tmp_path, unit)
    assert seconds_per_step(run, unit) == 0.25
    assert reached(run, BLEU, 14.0, unit) == {"step": 20, "seconds": 5.0}
    assert reached(run, LOSS, 3.5, unit) == {"step": 20, "seconds": 5.0}  # lower is better
    assert reached(run, BLEU, 21.5, unit) is None


RUN = {
    "unit": "tokens",
    "count": 1500,
    "per_second": 200.0,
    "parameters": 1e6,
    "steps": 30,
    "seconds": 9.0,
    "peak_mb": 6e2,
}


def made(*scores: float, goal: dict[str, Any] | None) -> list[dict[str, Any]]:
    curve = {"step": [10, 20], "seconds": [2.5, 5.0], "score": [1.0, 2.0]}
    return [
        {"seed": i, "score": score, "judged_on": "valid", "reached": goal, "curve": curve, "by_length": None, **RUN}
        for i, score in enumerate(scores)
    ]


def test_the_table_averages_seeds_and_puts_the_best_first() -> None:
    runs = {"a": made(3.0, 5.0, goal={"seconds": 4.0}), "b <i>": made(6.0, 8.0, goal=None)}
    b, a = table(runs, BLEU)
    assert (a["name"], a["score"], a["reached_seconds"]) == ("a", 4.0, 4.0)
    assert a["sd"] == pytest.approx(2**0.5)
    assert b["reached_seconds"] is None
    assert [row["name"] for row in table(runs, LOSS)] == ["a", "b <i>"]


def test_what_was_never_reached_is_said_and_names_are_escaped(tmp_path: Path) -> None:
    runs = {"a": made(3.0, goal={"seconds": 4.0}), "b <i>": made(6.0, goal=None)}
    results = {
        "title": "a & b",
        "metric": "bleu",
        "unit": "tokens",
        "goal": 2.0,
        "table": table(runs, BLEU),
        "runs": runs,
    }
    text = page(results, plot_comparison(results, tmp_path / "a.svg").read_text(), "x < 1")
    assert "<td>b &lt;i&gt;</td>" in text
    assert "<td>never</td>" in text
    assert "<h1>a &amp; b</h1>" in text
    assert "<pre>x &lt; 1</pre>" in text

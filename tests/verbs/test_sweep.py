"""Sweeps of a small model on the bundled corpus, trained for real, each run in a process of its own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest

import clearformer
from clearformer.bundled.corpus import splits, write_corpus
from clearformer.checkpoint import RunFolder
from clearformer.errors import CheckpointError, ConfigError
from clearformer.training.journal import read_metrics
from clearformer.verbs import sweep as verb
from clearformer.verbs.sweep import parts_of, pause_of

DEMO = Path(clearformer.__file__).parent / "bundled" / "demo.toml"
SMALL = [
    "model.n_encoder_layers=1", "model.n_decoder_layers=1", "model.d_model=28", "model.d_ff=46", "model.n_heads=2",
    "train.tokens=512", "train.steps=18", "train.log_every=3", "train.validate_every=3", "train.save_every=3",
    "evaluate.max_validation=11", "model.max_length=67", "data.filter.max_tokens=61", "train.metric=loss",
]  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(splits(train=200), folder)
    return folder


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "OMP_NUM_THREADS", "1")


def run(corpus: Path, out: Path, **options: Any) -> dict[str, Any]:
    settings = [*SMALL, f"data.root={corpus}"]
    return clearformer.sweep(DEMO, settings=settings, out=out, device="cpu", **options)


@pytest.mark.slow
def test_a_grid_keeps_the_best(corpus: Path, tmp_path: Path) -> None:
    results = run(corpus, tmp_path / "s", over={"optim.lr": [1e-6, 0.01]}, at_once=2)
    assert [row["name"] for row in results["table"]][-1] == "001"  # with this rate, nothing is learnt
    scores = [row["score"] for row in results["table"]]
    assert scores == sorted(scores)
    best = results["table"][0]
    report = json.loads((tmp_path / "s" / "best" / "report.json").read_text())
    assert report["valid"]["loss"] == best["score"]
    assert report["test"]["bleu"] == best["test"]["bleu"]
    assert clearformer.load(tmp_path / "s" / "best", "cpu").translate(["The cat sleeps"]) is not None
    assert (tmp_path / "s" / "figure.svg").read_text().count("<svg") == 1
    assert json.loads((tmp_path / "s" / "results.json").read_text()) == results
    with pytest.raises(CheckpointError, match="another sweep"):
        run(corpus, tmp_path / "s", over={"optim.lr": [0.5]})


@pytest.mark.slow
def test_halving_trains_the_best_to_the_end_and_is_resumed(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = ["optim.lr=1e-6,0.001,0.003,0.01"]
    starts: list[str] = []
    original = verb.train_apart

    def interrupted(recipe: Any, folder: RunFolder, *rest: Any) -> None:
        starts.append(folder.path.name)
        if len(starts) == 6:
            raise KeyboardInterrupt
        original(recipe, folder, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(verb, "train_apart", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(corpus, tmp_path / "broken", over=over, method="halving", runs=5)
    resumed = run(corpus, tmp_path / "broken", over=over, method="halving", runs=5)
    straight = run(corpus, tmp_path / "straight", over=over, method="halving", runs=5)
    for one, other in zip(resumed["table"], straight["table"], strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}
    complete = {row["name"] for row in straight["table"] if row["is_complete"]}
    assert "000" in complete  # the default is never dropped
    assert len(complete) == 3 if straight["table"][-1]["name"] == "000" else len(complete) in (2, 3)
    for row in straight["table"]:
        assert row["steps"] == (18 if row["is_complete"] else 6)
        steps = [r["step"] for r in read_metrics(tmp_path / "straight" / row["name"] / "metrics.jsonl")]
        assert max(steps) == row["steps"]


@pytest.mark.slow
def test_a_run_that_diverges_is_noted(corpus: Path, tmp_path: Path) -> None:
    """At this rate, the weights overflow within a few steps."""
    settings = [*SMALL, f"data.root={corpus}", "optim.kind=sgd", "train.clip=0", "optim.lr=0.01"]
    over = ["optim.lr=1e6"]
    results = clearformer.sweep(DEMO, settings=settings, out=tmp_path / "s", device="cpu", over=over)
    assert results["table"][0]["name"] == "000"
    assert "not finite" in results["table"][1]["error"] or "finite" in results["table"][1]["error"]


REVIEWS = [(f"a {word} film {i}", label) for i in range(30) for word, label in (("fine", "good"), ("dull", "bad"))]
PAIRS = [(f"the {a} sees {b}", f"{b} {a}".upper()) for a in ("dog", "cat", "man", "girl") for b in map(str, range(20))]
OBJECTS: dict[str, tuple[dict[str, Callable[[int], Any]], str, str, list[str]]] = {
    "generator": (
        {"pairs": lambda order: (pair for pair in PAIRS[::order])},
        "a generator of 80 pairs",
        "transformer",
        ["model.d_model=28", "model.n_heads=2", "text.strict=false", "train.tokens=512"],
    ),
    "frame": (
        {
            "labels": lambda order: pandas.DataFrame(REVIEWS[::order], columns=["text", "label"]),
            "test": lambda order: iter(REVIEWS[:7]),
        },
        "a pandas DataFrame of 60 labelled texts",
        "textcnn",
        ["train.tokens=256"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", OBJECTS)
def test_python_objects_are_read_once_and_the_sweep_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    data, title, model, sizes = OBJECTS[kind]
    settings = [*sizes, "train.steps=6", "train.validate_every=3"]
    out = tmp_path / "broken"

    def run(out: Path, order: int = 1) -> dict[str, Any]:
        given = {name: make(order) for name, make in data.items()}
        over = {"optim.lr": [1e-6]}
        return clearformer.sweep(**given, over=over, model=model, settings=settings, out=out, device="cpu")

    original = verb.train_apart

    def interrupted(recipe: Any, folder: RunFolder, *rest: Any) -> None:
        if folder.path.name == "001":
            raise KeyboardInterrupt
        original(recipe, folder, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(verb, "train_apart", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(out)
    assert not (out / "results.json").exists()
    with pytest.raises(CheckpointError, match="another sweep"):
        run(out, order=-1)  # the same examples in another order would be split in another way
    straight = run(tmp_path / "straight")
    for one, other in zip(run(out)["table"], straight["table"], strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}
    for folder in ("000", "001"):
        train = clearformer.Recipe.read(out / folder / "recipe.toml").data.train
        assert (train.given, train.path.exists()) == (title, True)
        assert train.path.is_relative_to(out / folder / "given")


@pytest.mark.slow
def test_a_killed_sweep_leaves_no_run_behind(corpus: Path, tmp_path: Path) -> None:
    """Its run saves a checkpoint and stops, so that the repeated command can resume it."""
    settings = [word for entry in (*SMALL, f"data.root={corpus}") for word in ("--set", entry)]
    command = [sys.executable, "-m", "clearformer", "sweep", str(DEMO), *settings, "--set", "train.steps=100000"]
    command += ["--over", "optim.lr=0.01", "--out", str(tmp_path / "s"), "--device", "cpu"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    run = RunFolder(tmp_path / "s" / "000")
    wait_for(lambda: run.metrics.exists() and len(read_metrics(run.metrics)) > 1)
    process.kill()
    process.wait()
    wait_for(lambda: is_free(run))
    step = max(row["step"] for row in read_metrics(run.metrics))
    report = clearformer.train(out=run.path, resume=True, settings=[f"train.steps={step + 20}"], device="cpu")
    assert report["steps"] == step + 20


def is_free(run: RunFolder) -> bool:
    try:
        with run.lock():
            return True
    except CheckpointError:
        return False


def wait_for(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.05)


def test_mistakes(corpus: Path, tmp_path: Path) -> None:
    for options, message in (
        ({"over": []}, "no setting to vary"),
        ({"over": ["optim.lr=0.1"], "method": "gird"}, "did you mean `grid`"),
        ({"over": ["optim.lr=0.1"], "runs": 3}, "omit --runs"),
        ({"over": ["optim.lr=0.1..1"], "runs": 1}, "at least two runs"),
        ({"over": ["optim.lrr=0.1"]}, "lrr"),
        ({"over": {"train.steps": [18]}}, "all values of the sweep are the default"),
    ):
        with pytest.raises(ConfigError, match=message):
            run(corpus, tmp_path / "s", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "s").exists()


def test_rounds() -> None:
    assert parts_of(2) == [1.0]
    assert parts_of(3) == parts_of(8) == [1 / 3, 1.0]
    assert parts_of(9) == [1 / 9, 1 / 3, 1.0]


def test_a_round_ends_with_a_validation(corpus: Path) -> None:
    recipe = clearformer.plan(DEMO, settings=[*SMALL, f"data.root={corpus}"])
    assert pause_of(recipe, 1 / 3) == 6
    assert pause_of(recipe, 1 / 4) == 6  # 4.5 steps, and a validation every 3
    assert pause_of(recipe, 1 / 100) is None or pause_of(recipe, 1 / 100) == 3
    assert pause_of(recipe, 1.0) is None

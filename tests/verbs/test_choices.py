"""steps, epochs, lr, batch_size, seed and precision as keywords and options; settings as dictionaries."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clearformer
from clearformer import Recipe
from clearformer.errors import ConfigError
from clearformer.tables import override
from clearformer.verbs.choices import KEYS, all_settings

SMALL: dict[str, Any] = {
    "model": {"n_encoder_layers": 1, "n_decoder_layers": 1, "d_model": 28, "d_ff": 46, "max_length": 67},
    "data.filter.max_tokens": 61,
    "text.vocab_size": 61,
    "schedule.warmup": 3,
    "train": {"tokens": 257, "ema": 0},
}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    animals = ["dog", "cat", "bird", "mouse", "horse"]
    rows = [
        f"the {a} sees the {b} {n} times.\tle {a} voit le {b} {n} fois.\n"
        for a in animals
        for b in animals
        for n in range(7)
    ]
    path.write_text("".join(rows))
    return path


def test_a_dictionary_says_what_strings_say() -> None:
    settings = {
        "train.steps": 5,
        "optim": {"lr": 1e-05, "betas": (0.9, np.float64(0.5))},
        "text": {"lowercase": True, "kind": "bpe"},
        "data.train.path": Path('a "b".tsv'),
        "image.augment": {},
        "model": {"positions": {"kind": "alibi"}},
    }
    assert override({}, all_settings(settings)) == {
        "train": {"steps": 5},
        "optim": {"lr": 1e-05, "betas": [0.9, 0.5]},
        "text": {"lowercase": True, "kind": "bpe"},
        "data": {"train": {"path": 'a "b".tsv'}},
        "image": {"augment": {}},
        "model": {"positions": {"kind": "alibi"}},
    }
    assert all_settings("train.steps=5") == ["train.steps=5"]
    with pytest.raises(ConfigError, match="cannot be None"):
        all_settings({"train.metric": None})
    with pytest.raises(ConfigError, match="expected table"):
        override({}, all_settings({"steps": 5}))


@pytest.mark.parametrize("name", KEYS)
def test_a_key_is_set_once(name: str) -> None:
    option = f"--{name.replace('_', '-')}"
    with pytest.raises(ConfigError, match=rf"{option} and --set {KEYS[name]}=7 both set {KEYS[name]}\nhint: give one"):
        all_settings([f"{KEYS[name]}=7"], **{name: 7})
    with pytest.raises(ConfigError, match=rf"{option} and --set {KEYS[name]}=7 both set"):
        all_settings({KEYS[name]: 7}, **{name: 7})


@pytest.mark.parametrize(
    ("settings", "choices"),
    [([], {"steps": 3, "epochs": 1}), (["train.steps=3"], {"epochs": 1}), (["train.epochs=3"], {"steps": 1})],
)
def test_a_run_has_one_length(settings: list[str], choices: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="cannot be combined: both set the length of the run"):
        all_settings(settings, **choices)


def test_the_keywords_reach_the_recipe(pairs: Path) -> None:
    choices: dict[str, Any] = {"steps": 7, "lr": 0.25, "batch_size": 123, "seed": 5, "precision": "float64"}
    recipe = clearformer.plan(pairs=pairs, settings=SMALL | {"train": {"ema": 0}}, device="cpu", **choices)
    train = recipe.train
    assert (train.steps, recipe.optim.lr, train.tokens, train.seed, train.precision) == (7, 0.25, 123, 5, "float64")
    assert train.accumulation == 1
    parts = clearformer.plan(pairs=pairs, batch_size=64, settings=["train.accumulation=3"], device="cpu").train
    assert (parts.tokens, parts.accumulation) == (64, 3)


def test_epochs_become_steps(pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planned = clearformer.plan(pairs=pairs, epochs=1.5, settings=SMALL, device="cpu").train
    assert planned.epochs == 1.5
    report = clearformer.train(pairs=pairs, epochs=1.5, settings=SMALL, device="cpu", out=tmp_path / "run")
    shown = capsys.readouterr().err
    per_epoch = int(shown.split(" steps per epoch")[0].split()[-1])
    assert per_epoch > 5
    assert report["steps"] == round(1.5 * per_epoch) == pytest.approx(planned.steps, rel=0.5)
    assert f"1.5 epochs are {report['steps']} steps" in shown
    train = Recipe.read(tmp_path / "run" / "recipe.toml").train
    assert (train.steps, train.epochs) == (report["steps"], None)
    assert train.validate_every <= max(50, train.steps)


def test_a_run_is_continued_to_more_epochs_or_steps(pairs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = clearformer.train(pairs=pairs, epochs=1, settings=SMALL, device="cpu", out=run)
    second = clearformer.train(out=run, resume=True, epochs=2, device="cpu")
    assert second["steps"] == 2 * first["steps"]
    third = clearformer.train(out=run, resume=True, steps=second["steps"] + 3, device="cpu")
    assert third["steps"] == second["steps"] + 3


def test_steps_take_precedence_over_the_epochs_of_a_recipe(pairs: Path, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(clearformer.plan(pairs=pairs, epochs=3, settings=SMALL, device="cpu").dump())
    assert Recipe.read(path).train.epochs == 3
    train = clearformer.plan(path, steps=5).train
    assert (train.steps, train.epochs) == (5, None)
    assert override({}, ["train.epochs=3", "train.steps=5"]) == {"train": {"steps": 5}}  # as a sweep over steps


@pytest.mark.parametrize(("epochs", "message"), [(0, "train] epochs = 0 is too small"), (-1, "too small")])
def test_epochs_are_positive(pairs: Path, epochs: float, message: str) -> None:
    with pytest.raises(ConfigError, match="epochs") as error:
        clearformer.plan(pairs=pairs, epochs=epochs, device="cpu")
    assert message in str(error.value)


def write_labels(folder: Path) -> Path:
    path = folder / "labels.tsv"
    path.write_text("".join(f"the {('dull', 'fine')[i % 2]} film {i}\t{('bad', 'good')[i % 2]}\n" for i in range(90)))
    return path


def write_images(folder: Path) -> Path:
    image = pytest.importorskip("PIL.Image")
    for i in range(60):
        path = folder / "images" / ("dark", "light")[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.fromarray(np.full((8, 8), (20 + i, 200 - i)[i % 2], np.uint8)).save(path)
    return folder / "images"


@pytest.mark.parametrize(
    ("flag", "write", "unit"), [("labels", write_labels, "64 tokens"), ("images", write_images, "64 images")]
)
def test_every_task_says_what_a_batch_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str, write: Callable[[Path], Path], unit: str
) -> None:
    data = {flag: write(tmp_path)}
    recipe = clearformer.plan(batch_size=64, epochs=2, device="cpu", **data)
    assert f"batch size: each step has {unit}\n" in capsys.readouterr().err
    report = clearformer.train(batch_size=64, epochs=2, device="cpu", out=tmp_path / "run", **data)
    assert report["steps"] == pytest.approx(recipe.train.steps, abs=4)


def test_finetune_takes_the_same_keywords(pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clearformer.train(pairs=pairs, steps=3, settings=SMALL, device="cpu", out=tmp_path / "base")
    capsys.readouterr()
    report = clearformer.finetune(
        tmp_path / "base", pairs, epochs=0.5, batch_size=300, lr=0.125, seed=3, device="cpu", out=tmp_path / "run"
    )
    assert "batch size: each step has 300 tokens per side" in capsys.readouterr().err
    recipe = Recipe.read(tmp_path / "run" / "recipe.toml")
    assert (recipe.train.tokens, recipe.optim.lr, recipe.train.seed) == (300, 0.125, 3)
    assert recipe.train.steps == report["steps"]
    assert report["steps"] < 12


@pytest.mark.slow
def test_sweep_takes_the_same_keywords(tmp_path: Path) -> None:
    choices: dict[str, Any] = {"epochs": 2, "batch_size": 64, "device": "cpu", "settings": {"train": {"ema": 0}}}
    clearformer.sweep(labels=write_labels(tmp_path), over={"optim.lr": [0.01]}, out=tmp_path / "sweep", **choices)
    tables = [Recipe.read(tmp_path / "sweep" / name / "recipe.toml").train for name in ("000", "001")]
    reports = [json.loads((tmp_path / "sweep" / name / "report.json").read_text()) for name in ("000", "001")]
    assert [(train.tokens, train.ema, train.epochs) for train in tables] == [(64, 0, None)] * 2
    assert reports[0]["steps"] == reports[1]["steps"] == tables[0].steps > 10


def test_the_options_are_the_keywords(pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from clearformer.cli import app

    def dry(*options: str) -> dict[str, Any]:
        with pytest.raises(SystemExit) as stop:
            app(["train", "--pairs", str(pairs), "--device", "cpu", "--dry-run", "--json", *options])
        assert stop.value.code == 0
        train: dict[str, Any] = json.loads(capsys.readouterr().out)["train"]
        return train

    train = dry("--epochs", "0.5", "--batch-size", "99", "--seed", "4", "--precision", "bfloat16")
    assert (train["epochs"], train["tokens"], train["seed"], train["precision"]) == (0.5, 99, 4, "bfloat16")
    assert dry("--steps", "11", "--lr", "0.5")["steps"] == 11
    with pytest.raises(SystemExit):
        app(["train", "--pairs", str(pairs), "--steps", "3", "--set", "train.steps=4"])
    assert "error: --steps and --set train.steps=4 both set train.steps" in capsys.readouterr().err

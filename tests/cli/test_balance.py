"""Classes out of balance: the note, --balance, weights by name, and the errors."""

import json
import re
from pathlib import Path
from random import Random

import numpy as np
import pytest
from PIL import Image

import clearformer
from clearformer.checkpoint import RunFolder, load_tensors
from clearformer.data.image_store import ImageStore
from clearformer.fit import prepare
from clearformer.recipe import Recipe
from clearformer.training.distributed import World

WORDS = ("the", "a", "film", "story", "plot", "actor", "scene", "long", "short", "old", "new", "calm", "and", "of")
SMALL = ["train.steps=4", "train.validate_every=2", "data.held_out=0.2", "train.tokens=200"]
SETTINGS = [word for setting in SMALL for word in ("--set", setting)]
NOTE = "classes are out of balance (examples: bad "


def write_reviews(path: Path, n_bad: int, n_good: int) -> Path:
    draw = Random(5)
    rows = [("dull", "bad")] * n_bad + [("fine", "good")] * n_good
    texts = [" ".join(draw.choices(WORDS, k=5)) for _ in rows]
    path.write_text("".join(f"{text} {word}\t{label}\n" for text, (word, label) in zip(texts, rows)))
    return path


@pytest.fixture
def skewed(tmp_path: Path) -> Path:
    return write_reviews(tmp_path / "skewed.tsv", 180, 20)


def counts(run: Path) -> list[int]:
    return np.bincount(load_tensors(run / "data" / "train.safetensors")[0]["classes"].numpy()).tolist()


def test_imbalance_is_reported_once_with_its_remedy(cli, skewed: Path, tmp_path: Path) -> None:
    shown = cli("train", "--labels", skewed, "--out", tmp_path / "run", "--device", "cpu", *SETTINGS)
    bad, good = counts(tmp_path / "run")
    line = f"{NOTE}{bad} and good {good}); --balance predicts all classes alike"
    assert " ".join(shown.err.split()).count(line) == 1
    more = cli("train", "--resume", "--out", tmp_path / "run", "--set", "train.steps=5", "--device", "cpu")
    assert more.code == 0
    assert "out of balance" not in more.err


def test_a_class_without_validation_data_is_reported(cli, skewed: Path, tmp_path: Path) -> None:
    valid = tmp_path / "valid.tsv"
    valid.write_text("a dull film\tbad\na dull plot\tbad\n")
    given = ("train", "--labels", skewed, "--valid", valid, "--out", tmp_path / "run", "--device", "cpu", *SETTINGS)
    assert "the validation data has no examples of good; add some with --valid or data.held_out" in cli(*given).err


def test_balanced_classes_are_not_reported(cli, tmp_path: Path) -> None:
    even = write_reviews(tmp_path / "even.tsv", 60, 60)
    shown = cli("train", "--labels", even, "--out", tmp_path / "run", "--device", "cpu", *SETTINGS)
    assert (shown.code, "balance" in shown.err) == (0, False)


def test_balance_adjusts_logits_and_decides_by_a_balanced_loss(cli, skewed: Path, tmp_path: Path) -> None:
    given = ("train", "--labels", skewed, "--out", tmp_path / "run", "--device", "cpu", *SETTINGS, "--balance")
    assert json.loads(cli(*given, "--dry-run", "--json").out)["objective"]["prior"] == "data"
    shown = cli(*given)
    assert shown.code == 0
    assert NOTE not in shown.err
    bad, good = counts(tmp_path / "run")
    n = bad + good
    line = f"logits adjusted by the frequencies of the classes: bad {bad / n:.3g} and good {good / n:.3g}"
    assert line in " ".join(shown.err.split())
    recipe = Recipe.read(tmp_path / "run" / "recipe.toml")
    assert recipe.objective.prior == "data"
    task = prepare(recipe, RunFolder(tmp_path / "run"), World(), None, None)
    assert task.build_objective().config.prior == pytest.approx((bad / n, good / n))
    assert task.deciding_metric(recipe).name == "balanced_loss"
    assert task.deciding_metric(recipe.with_tables(objective=recipe.objective.changed(prior=None))).name == "accuracy"


def test_the_saved_model_gives_the_balanced_outputs(cli, skewed: Path, tmp_path: Path) -> None:
    """The head contains what was fitted on validation data, so that exports need nothing; a resumed run goes on."""
    run = tmp_path / "run"
    given = ("train", "--labels", skewed, "--valid", skewed, "--out", run, "--device", "cpu", *SETTINGS, "--balance")
    assert cli(*given).code == 0
    report = json.loads((run / "report.json").read_text())
    measured = json.loads(cli("evaluate", "--model", run, "--labels", skewed, "--device", "cpu", "--json").out)
    for name in ("balanced_loss", "accuracy", "macro_f1"):
        assert measured[name] == pytest.approx(report["valid"][name], abs=1e-5)
    predicted = np.array(measured["confusion"]).sum(0)
    assert predicted.min() > 0  # neither class is ignored
    assert cli("train", "--resume", "--out", run, "--set", "train.steps=6", "--device", "cpu").code == 0


def test_balanced_weights_decide_by_a_balanced_loss(cli, skewed: Path, tmp_path: Path) -> None:
    given = ("train", "--labels", skewed, "--out", tmp_path / "run", "--device", "cpu", *SETTINGS)
    shown = cli(*given, "--set", "objective.weights=balanced")
    assert shown.code == 0
    assert NOTE not in shown.err
    bad, good = counts(tmp_path / "run")
    n = bad + good
    assert f"class weights: good {n / (2 * good):.3g} and bad {n / (2 * bad):.3g}" in " ".join(shown.err.split())
    recipe = Recipe.read(tmp_path / "run" / "recipe.toml")
    assert recipe.objective.weights == "balanced"
    task = prepare(recipe, RunFolder(tmp_path / "run"), World(), None, None)
    assert task.build_objective().config.weights == pytest.approx((n / (2 * bad), n / (2 * good)))
    assert task.deciding_metric(recipe).name == "balanced_loss"
    assert task.deciding_metric(recipe.with_tables(objective=recipe.objective.changed(weights=None))).name == "accuracy"


def test_steps_without_rare_classes_are_reported(cli, skewed: Path, tmp_path: Path) -> None:
    """Their weights would be lost in gradient clipping. The setting of the hint remedies it."""
    given = ("train", "--labels", skewed, "--device", "cpu", *SETTINGS, "--set", "train.tokens=40")
    given += ("--set", "objective.weights=balanced")
    shown = cli(*given, "--out", tmp_path / "run").err
    assert "examples of good on average, too few for weights to have much effect" in shown
    setting = re.findall(r"larger steps: --set (train.accumulation=\d+)", shown)
    assert "on average, too few" not in cli(*given, "--set", *setting, "--out", tmp_path / "large").err


def test_weights_by_name(cli, skewed: Path, tmp_path: Path) -> None:
    given = ("train", "--labels", skewed, "--device", "cpu", *SETTINGS)
    wrong = cli(*given, "--out", tmp_path / "wrong", "--set", "objective.weights.goood=3")
    assert wrong.code == 1
    assert "objective.weights: there is no class `goood`\nhint: did you mean `good`?" in wrong.err
    shown = cli(*given, "--out", tmp_path / "run", "--set", "objective.weights.good=3")
    assert "class weights: good 3 and bad 1" in " ".join(shown.err.split())
    assert Recipe.read(tmp_path / "run" / "recipe.toml").objective.weights == {"good": 3.0}


def test_images_are_balanced_too(cli, tmp_path: Path) -> None:
    rng, folder = np.random.default_rng(1), tmp_path / "blots"
    for name, n in (("dark", 100), ("light", 12)):
        (folder / name).mkdir(parents=True)
        for i in range(n):
            pixels = rng.integers(0, 120, (9, 9, 3)) + (130 if name == "light" else 0)
            Image.fromarray(pixels.astype("uint8")).save(folder / name / f"{i}.png")
    settings = ["train.steps=2", "train.validate_every=2", "data.held_out=0.2"]
    words = [word for setting in settings for word in ("--set", setting)]
    for out, more in (("plain", ()), ("balanced", ("--balance",))):
        shown = cli("train", "--images", folder, "--out", tmp_path / out, "--device", "cpu", *words, *more)
        dark, light = np.bincount(ImageStore(tmp_path / out / "data" / "train.safetensors").classes)
        line = f"classes are out of balance (images: dark {dark} and light {light})"
        assert (line in " ".join(shown.err.split())) == (out == "plain")
    tuned = clearformer.finetune(
        tmp_path / "plain", images=folder, out=tmp_path / "tuned", balance=True, settings=settings, device="cpu"
    )
    assert Recipe.read(Path(tuned["run"]) / "recipe.toml").objective.prior == "data"


def test_balance_is_for_classes(cli, corpus: Path, skewed: Path, tmp_path: Path) -> None:
    numbers = tmp_path / "numbers.tsv"
    numbers.write_text("".join(f"text {i}\t{i}\n" for i in range(50)))
    cases = [
        (("train", "--pairs", corpus, "--balance"), "--balance is for classifiers"),
        (("finetune", "-m", "en-fr-small", "--pairs", corpus, "--balance"), "--balance is for classifiers"),
        (
            ("train", "--labels", numbers, "--balance", "--set", "data.regression=true"),
            "objective.prior is for class",
        ),
        (
            ("train", "--labels", skewed, "--balance", "--set", "objective.weights.good=3"),
            "--balance and objective.weights cannot be combined",
        ),
        (("train", "--resume", "--out", tmp_path, "--balance"), "--balance cannot be combined with --resume"),
        (("train", "--labels", skewed, "--set", "objective.weights=balancd"), 'expected "balanced", a table or a list'),
    ]
    for arguments, problem in cases:
        code, out, err = cli(*arguments)
        assert (code, out) == (1, ""), arguments
        assert problem in " ".join(err.split())
        assert "hint: " in err

"""Results of a classifier: evaluate --confusion, --errors and --calibrate; plot confusion, calibration and errors."""

import json
import shutil
from pathlib import Path
from random import Random

import numpy as np
import pytest
from PIL import Image

import clearformer
from clearformer.handles.classifier import Classifier
from clearformer.loading.open import open_model
from clearformer.verbs.plot import FIGURES

WORDS = ("the", "a", "film", "story", "plot", "actor", "scene", "long", "short", "old", "new", "calm", "and", "of")
SETTINGS = ["train.steps=80", "train.validate_every=40", "data.held_out=0.3", "train.tokens=600"]


@pytest.fixture(scope="session")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reviews of which one in six has the wrong label, so that no model can be right about all."""
    path, draw = tmp_path_factory.mktemp("noisy") / "noisy.tsv", Random(3)
    lines = []
    for i in range(420):
        words = draw.choices(WORDS, k=draw.randint(2, 6))
        words.insert(1, ("dull", "fine")[i % 2])
        lines.append(f"{' '.join(words)}\t{('bad', 'good')[i % 2 if draw.random() > 1 / 6 else 1 - i % 2]}\n")
    path.write_text("".join(lines))
    return path


@pytest.fixture(scope="session")
def trained(noisy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "noisy"
    clearformer.train(labels=noisy, out=folder, settings=SETTINGS, device="cpu")
    return folder


@pytest.fixture
def critic(trained: Path, tmp_path: Path) -> Path:
    """A copy, since calibration is saved in the run folder."""
    return Path(shutil.copytree(trained, tmp_path / "critic"))


@pytest.fixture(scope="session")
def blots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bright and dark images, one in five with the wrong label."""
    folder, rng = tmp_path_factory.mktemp("images") / "blots", np.random.default_rng(1)
    for i in range(150):
        k = i % 2
        pixels = rng.integers(100 * k, 100 * k + 120, (9, 9, 3)).astype("uint8")
        name = ("dark", "light")[k if rng.random() > 0.2 else 1 - k]
        (folder / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / name / f"{i}.png")
    return folder


@pytest.fixture(scope="session")
def eye(blots: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "blots"
    settings = ["train.steps=40", "train.validate_every=20", "data.held_out=0.3", "train.tokens=23", "optim.lr=0.05"]
    clearformer.train(images=blots, out=folder, settings=settings, device="cpu")
    return folder


def test_classes_are_evaluated_one_by_one(cli, critic: Path, noisy: Path) -> None:
    arguments = ("evaluate", "-m", critic, "--labels", noisy, "--device", "cpu")
    result = json.loads(cli(*arguments, "--json").out)
    assert result == clearformer.evaluate(critic, labels=noisy, device="cpu")
    table = np.array(result["confusion"])
    assert [row["class"] for row in result["per_class"]] == result["classes"] == ["bad", "good"]
    assert [row["support"] for row in result["per_class"]] == table.sum(1).tolist()
    assert [row["recall"] for row in result["per_class"]] == pytest.approx((table.diagonal() / table.sum(1)).tolist())
    assert result["macro_f1"] == pytest.approx(np.mean([row["f1"] for row in result["per_class"]]))
    assert 0 < result["ece"] < 1
    assert "errors" not in result
    lines = cli(*arguments, "--confusion").out.splitlines()
    start = lines.index("class  precision  recall      f1  support")
    assert [line.split()[0] for line in lines[start + 1 : start + 3]] == ["bad", "good"]
    assert f"macro_f1 {result['macro_f1']:.4f}" in lines
    start = lines.index("confusion: rows are labels, columns are predictions")
    assert lines[start + 1].split() == ["bad", "good"]
    assert [line.split() for line in lines[start + 2 : start + 4]] == [
        [name, *map(str, row)] for name, row in zip(result["classes"], result["confusion"])
    ]
    assert lines[-1] == "420 examples"


def test_errors_are_listed_by_confidence(cli, critic: Path, noisy: Path) -> None:
    arguments = ("evaluate", "-m", critic, "--labels", noisy, "--device", "cpu", "--errors", 5)
    errors = json.loads(cli(*arguments, "--json").out)["errors"]
    assert len(errors) == 5
    labels: dict[str, set[str]] = {}
    for line in noisy.read_text().splitlines():
        text, label = line.split("\t")
        labels.setdefault(text, set()).add(label)
    for error in errors:
        assert error["label"] in labels[error["text"]]
        (row,) = clearformer.classify(critic, [error["text"]])
        assert (row["label"], row["probability"]) == (error["predicted"], pytest.approx(error["probability"], abs=1e-5))
        assert error["label"] != error["predicted"]
    probabilities = [error["probability"] for error in errors]
    assert probabilities == sorted(probabilities, reverse=True)
    lines = cli(*arguments).out.splitlines()
    assert lines[-6] == "probability\tlabel\tpredicted\ttext"
    first = errors[0]
    assert lines[-5].split("\t") == [f"{probabilities[0]:.4f}", first["label"], first["predicted"], first["text"]]


def test_calibration_is_saved_and_used(cli, critic: Path, noisy: Path) -> None:
    texts = ["the fine film", "a dull story"]
    before = clearformer.classify(critic, texts, top=2)
    plain = clearformer.evaluate(critic, labels=noisy, device="cpu")
    shown = cli("evaluate", "-m", critic, "--labels", noisy, "--device", "cpu", "--calibrate", "--json")
    assert shown.code == 0
    assert "calibrated on " in shown.err
    result, saved = json.loads(shown.out), json.loads((critic / "calibration.json").read_text())
    temperature = saved["temperature"]
    assert result["temperature"] == temperature != 1
    assert saved["loss"] < saved["loss_uncalibrated"]  # the minimum, on the validation data
    assert (result["ece_uncalibrated"], result["accuracy"]) == (pytest.approx(plain["ece"]), plain["accuracy"])
    assert clearformer.evaluate(critic, labels=noisy, device="cpu") == result  # a later evaluation is calibrated, too
    handle = clearformer.load(critic)
    assert isinstance(handle, Classifier)
    assert f"calibrated (temperature {temperature:.3g})" in repr(handle)
    after, logits = clearformer.classify(critic, texts, top=2), handle.logits(texts)
    for i, (old, new) in enumerate(zip(before, after)):
        assert [one["label"] for one in new["top"]] == [one["label"] for one in old["top"]]
        expected = (logits[i] / temperature).softmax(-1).max()
        assert new["probability"] == pytest.approx(float(expected), abs=1e-6) != old["probability"]
    assert f"calibrated: probabilities are softmax(logits / {temperature:.3g})" in cli("inspect", critic).out
    assert json.loads(cli("inspect", critic, "--json").out)["temperature"] == temperature


def test_further_training_ends_a_calibration(cli, critic: Path, noisy: Path) -> None:
    clearformer.evaluate(critic, labels=noisy, calibrate=True, device="cpu")
    shown = cli("train", "--resume", "--out", critic, "--set", "train.steps=82", "--device", "cpu")
    assert "the run is no longer calibrated" in shown.err
    assert not (critic / "calibration.json").exists()
    assert open_model(critic).temperature == 1


@pytest.mark.parametrize("text", ["{", '{"temperature": 0}', '{"temperature": "hot"}', "[]", '{"temperature": NaN}'])
def test_a_damaged_calibration_is_refused(cli, critic: Path, text: str) -> None:
    (critic / "calibration.json").write_text(text)
    code, out, err = cli("classify", "-m", critic, "x")
    assert (code, out) == (1, "")
    assert "calibration.json has no temperature above 0\nhint: " in err


def test_image_classifiers_are_evaluated_and_calibrated(cli, eye: Path, blots: Path, tmp_path: Path) -> None:
    mine = Path(shutil.copytree(eye, tmp_path / "eye"))
    arguments = ("evaluate", "-m", mine, "--images", blots, "--device", "cpu", "--errors", 3, "--json")
    result = json.loads(cli(*arguments, "--calibrate").out)
    assert [row["support"] for row in result["per_class"]] == np.sum(result["confusion"], 1).tolist()
    assert result["temperature"] == json.loads((mine / "calibration.json").read_text())["temperature"]
    assert 0 < len(result["errors"]) <= 3
    for error in result["errors"]:
        file = Path(error["image"])
        assert file.parent.name == error["label"] != error["predicted"]
        (row,) = clearformer.classify(mine, [str(file)])
        assert (row["label"], row["probability"]) == (error["predicted"], pytest.approx(error["probability"], abs=1e-5))


def test_the_validation_of_images_has_a_macro_f1(eye: Path) -> None:
    assert json.loads((eye / "report.json").read_text())["valid"].keys() == {"accuracy", "top5", "macro_f1", "loss"}


def test_errors_of_a_tagger_are_words(tmp_path: Path) -> None:
    draw, path = Random(7), tmp_path / "words.conll"
    rows = [[*draw.choices(WORDS, k=draw.randint(1, 4)), draw.choice(("Ada", "Ben"))] for _ in range(200)]

    def tag(word: str) -> str:
        return "NAME" if (word[0] in "AB") != (draw.random() < 0.1) else "O"

    path.write_text("".join("".join(f"{word} {tag(word)}\n" for word in row) + "\n" for row in rows))
    settings = ["train.steps=60", "train.validate_every=30", "data.held_out=0.3", "train.tokens=600"]
    clearformer.train(labels=path, out=tmp_path / "run", settings=settings, device="cpu")
    result = clearformer.evaluate(tmp_path / "run", labels=path, errors=3, calibrate=True, device="cpu")
    assert result["examples"] == sum(map(len, rows)) == sum(row["support"] for row in result["per_class"])
    for error in result["errors"]:
        assert error["word"] in error["text"].split()
        assert error["label"] != error["predicted"]
    first = result["errors"][0]
    (row,) = clearformer.classify(tmp_path / "run", [first["text"]])
    probabilities = [word["probability"] for word in row["words"] if word["word"] == first["word"]]
    assert min(abs(p - first["probability"]) for p in probabilities) < 1e-5


@pytest.mark.parametrize("name", ["confusion", "calibration", "errors"])
def test_figures_of_texts(cli, trained: Path, noisy: Path, tmp_path: Path, name: str) -> None:
    code, out, _ = cli("plot", name, "--model", trained, "--texts", noisy, "--out", tmp_path / "a.svg", "--json")
    assert code == 0
    values, metrics = json.loads(out), clearformer.evaluate(trained, labels=noisy, errors=20, device="cpu")
    key = {"confusion": "confusion", "calibration": "reliability", "errors": "errors"}[name]
    assert values[key] == metrics[key]
    again = FIGURES[name].draw(values, tmp_path / "b.svg").read_text()
    assert again == (tmp_path / "a.svg").read_text()
    assert f"<!-- {values['title']} -->" in again


@pytest.mark.parametrize("name", ["confusion", "calibration", "errors"])
def test_figures_of_images(eye: Path, blots: Path, tmp_path: Path, name: str) -> None:
    values = clearformer.plot(name, tmp_path / "a.png", model=eye, images=blots)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    if name == "errors":
        first = values["errors"][0]
        drawn = FIGURES[name].draw(values, tmp_path / "a.svg").read_text()
        assert f"<!-- {first['label']} → {first['predicted']} {first['probability']:.2f} -->" in drawn
        assert len(values["images"]) == len(values["errors"])
        with Image.open(values["errors"][0]["image"]) as image:
            assert values["images"][0] == np.asarray(image).tolist()  # 9 × 9, the size of the model


def test_mistakes(cli, critic: Path, run: Path, noisy: Path, corpus: Path, blots: Path, tmp_path: Path) -> None:
    (tmp_path / "values.tsv").write_text("".join(f"text {i}\t{i / 7}\n" for i in range(40)))
    settings = ["train.steps=2", "train.validate_every=2", "data.regression=true"]
    clearformer.train(labels=tmp_path / "values.tsv", out=tmp_path / "values", settings=settings, device="cpu")
    values = ("-m", tmp_path / "values", "--labels", tmp_path / "values.tsv")
    published = shutil.copytree(critic, tmp_path / "published")
    shutil.rmtree(published / "data")
    cases = [
        (
            ("evaluate", "-m", run, "--pairs", corpus, "--confusion"),
            "--confusion is for classifiers, but small is a tr",
        ),
        (("evaluate", "-m", run, "--pairs", corpus, "--errors", 2), "--errors is for classifiers"),
        (("evaluate", "-m", run, "--pairs", corpus, "--calibrate"), "--calibrate is for classifiers"),
        (("evaluate", *values, "--errors", 2), "--errors is for classifiers, but values is a regression model"),
        (("evaluate", "-m", published, "--labels", noisy, "--calibrate"), "has no validation data to calibrate on"),
        (("plot", "confusion", "-m", critic), "the figure `confusion` needs --texts"),
        (("plot", "errors", "-m", run, "--texts", noisy), "is a translator: it cannot be evaluated on --labels"),
        (("plot", "errors", "-m", critic, "--images", blots, "--images", blots), "takes --images only once"),
        (("plot", "calibration", "-m", critic, "--texts", tmp_path / "no.tsv"), "no.tsv does not exist"),
    ]
    for arguments, problem in cases:
        code, out, err = cli(*arguments)
        assert (code, out) == (1, ""), arguments
        assert problem in err
        assert "\nhint: " in err

"""train --images, classify, evaluate --images, finetune --images and embed on a folder of images."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import clearformer
from clearformer.errors import DataError

from ..bounds import float32_bound

SMALL = ["train.steps=60", "train.validate_every=30", "data.held_out=0.2", "train.tokens=23", "optim.lr=0.1"]
COLOURS = {"blue": (40, 60, 200), "green": (30, 180, 60), "red": (210, 50, 40)}


def paint(path: Path, colour: tuple[int, int, int], rng: np.random.Generator) -> Path:
    """A disc of this colour, somewhere on a noisy background that is wider than high."""
    height, width = 13, 17
    pixels = rng.integers(60, 120, (height, width, 3))
    y, x = np.ogrid[:height, :width]
    disc = (y - rng.integers(4, 9)) ** 2 + (x - rng.integers(6, 11)) ** 2 < 16
    pixels[disc] = colour
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.astype("uint8")).save(path)
    return path


@pytest.fixture(scope="session")
def discs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("images") / "discs", np.random.default_rng(1)
    for name, colour in COLOURS.items():
        for i in range(50):
            paint(folder / name / f"{i}.png", colour, rng)
    return folder


@pytest.fixture(scope="session")
def eye(discs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "eye"
    clearformer.train(images=discs, out=folder, settings=SMALL, device="cpu")
    return folder


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    rng = np.random.default_rng(7)
    return [paint(tmp_path / f"{name}.png", COLOURS[name], rng) for name in ("red", "blue")]


def test_a_dry_run_says_what_was_chosen(cli, discs: Path, tmp_path: Path) -> None:
    shown = cli("train", "--images", discs, "--dry-run", "--json", "--device", "cpu")
    recipe = json.loads(shown.out)
    assert recipe["model"]["kind"] == "resnet"
    assert (recipe["image"]["size"], recipe["image"]["channels"]) == (13, 3)
    assert recipe["image"]["augment"]["flip"] is True
    assert recipe["optim"]["kind"] == "nesterov"
    assert "150 colour images, 3 classes, median size 13 pixels (shorter side)" in shown.err
    assert "input 13 × 13 pixels, random crop (padding 1) and horizontal flip" in shown.err
    named = json.loads(cli("train", "--images", discs, "-m", "resnet18", "--dry-run", "--json").out)["model"]
    assert (named["preset"], named["stem"], named["depths"]) == ("resnet18", "3x3", [2, 2, 2, 2])
    grey = np.random.default_rng(0).integers(0, 256, (30, 9, 9), "uint8")
    np.savez(tmp_path / "grey.npz", images=grey, labels=np.arange(30) % 2)
    recipe = json.loads(cli("train", "--images", tmp_path / "grey.npz", "--dry-run", "--json").out)
    assert (recipe["image"]["channels"], recipe["image"]["augment"]["flip"]) == (1, False)


def test_train_prints_its_folder(cli, discs: Path, tmp_path: Path) -> None:
    settings = [word for setting in [*SMALL, "train.steps=5"] for word in ("--set", setting)]
    shown = cli("train", "--images", discs, "--test", discs, "--out", tmp_path / "run", "--device", "cpu", *settings)
    assert (shown.code, shown.out) == (0, f"{tmp_path / 'run'}\n")
    assert "test: Accuracy" in shown.err
    assert "on 150 images" in shown.err
    again = cli("train", "--images", discs, "--resume", "--out", tmp_path / "run")
    assert (again.code, "--images cannot be combined with --resume" in again.err) == (1, True)


def test_classify_names_files_and_their_classes(cli, eye: Path, photos: list[Path]) -> None:
    code, out, _ = cli("classify", "--model", eye, *photos)
    assert code == 0
    rows = [line.split("\t") for line in out.splitlines()]
    assert [row[:2] for row in rows] == [[str(photos[0]), "red"], [str(photos[1]), "blue"]]
    assert [len(row) for row in rows] == [7, 7]  # a file, and all three classes with their probabilities
    assert all(float(row[2]) > 0.5 for row in rows)
    lines = "".join(f"{path}\n" for path in photos).encode()
    assert cli("classify", "--model", eye, stdin=lines).out == out
    assert len(cli("classify", "-m", eye, "--top", 1, photos[0]).out.split("\t")) == 3


def test_classify_as_json(cli, eye: Path, photos: list[Path]) -> None:
    told = json.loads(cli("classify", "-m", eye, "--json", *photos).out)["images"]
    assert told == clearformer.classify(eye, [str(path) for path in photos], top=5)
    assert (told[0]["image"], told[0]["label"]) == (str(photos[0]), "red")
    assert sum(one["probability"] for one in told[0]["top"]) == pytest.approx(1)


def test_classify_answers_for_the_others_where_a_file_cannot_be_read(
    cli, eye: Path, photos: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    files = [tmp_path / "none.png", photos[0], tmp_path / "broken.jpg", photos[1]]
    expected = cli("classify", "-m", eye, *photos).out
    for shown in (
        cli("classify", "-m", eye, *files),
        cli("classify", "-m", eye, stdin="".join(f"{path}\n" for path in files).encode()),
    ):
        assert (shown.code, shown.out) == (1, expected)
        none, broken = (line for line in shown.err.splitlines() if line.startswith("error: "))
        assert "none.png does not exist" in none
        assert "broken.jpg cannot be read" in broken
    code, out, err = cli("classify", "-m", eye, "--json", *files)
    assert (code, [row["image"] for row in json.loads(out)["images"]]) == (1, [str(path) for path in photos])
    assert "Traceback" not in err
    with pytest.raises(DataError, match=r"none\.png does not exist"):
        clearformer.classify(eye, [str(path) for path in files])


def test_evaluate_counts(cli, eye: Path, discs: Path) -> None:
    told = json.loads(cli("evaluate", "--model", eye, "--images", discs, "--json", "--device", "cpu").out)
    assert told["accuracy"] > 0.95
    assert told["images"] == 150 == sum(map(sum, told["confusion"]))
    assert (told["classes"], told["left_out"]) == (["blue", "green", "red"], 0)
    lines = cli("evaluate", "--model", eye, "--images", discs, "--device", "cpu").out.splitlines()
    assert lines[0] == f"accuracy {told['accuracy']:.4f}"
    assert lines[1] == "top5 1.0000"
    assert lines[-1] == "150 images"


def test_evaluate_names_what_it_leaves_out(cli, eye: Path, discs: Path, tmp_path: Path) -> None:
    some = Path(shutil.copytree(discs, tmp_path / "some"))
    (some / "red" / "words.png").write_text("not an image")
    told = cli("evaluate", "--model", eye, "--images", some, "--json", "--device", "cpu")
    assert (json.loads(told.out)["images"], json.loads(told.out)["left_out"]) == (150, 1)
    assert "words.png cannot be read" in told.err


def test_finetune_on_other_classes(cli, eye: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    for name, colour in {"yellow": (220, 220, 30), "white": (250, 250, 250)}.items():
        for i in range(40):
            paint(tmp_path / "others" / name / f"{i}.png", colour, rng)
    settings = [word for setting in ["train.steps=40", "data.held_out=0.2"] for word in ("--set", setting)]
    arguments = ("--images", tmp_path / "others", "--method", "head", "--out", tmp_path / "run", "--device", "cpu")
    code, out, err = cli("finetune", "--model", eye, *arguments, "--json", *settings)
    assert code == 0
    report = json.loads(out)
    assert "head-only fine-tuning of" in err
    assert report["trainable"] < report["parameters"] / 10
    assert report["valid"]["accuracy"] > 0.9
    shown = cli("classify", "-m", tmp_path / "run", tmp_path / "others" / "white" / "0.png")
    assert shown.out.split("\t")[1] == "white"


def test_files_of_many_images_are_refused_in_words(cli, eye: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "many.npz", images=np.zeros((3, 7, 7), "uint8"))
    for verb in ("classify", "embed"):
        code, out, err = cli(verb, "--model", eye, tmp_path / "many.npz")
        assert (code, out) == (1, "")
        assert "many.npz contains many images" in err
        assert "Traceback" not in err


def test_embed_gives_what_the_head_reads(cli, eye: Path, photos: list[Path], tmp_path: Path) -> None:
    code, _, _ = cli("embed", "--model", eye, "--unit", "--out", tmp_path / "v.npy", *photos)
    assert code == 0
    vectors = np.load(tmp_path / "v.npy")
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=float32_bound(vectors.shape[1], 1.0))
    plain = clearformer.embed(eye, photos)
    viewer = clearformer.load(eye)
    head = viewer.model.classifier
    weight, bias = head.weight.detach().numpy(), head.bias.detach().numpy()
    bound = float32_bound(plain.shape[1], (abs(plain) @ abs(weight).T + abs(bias)).max())
    scores = viewer.logits(viewer.pixels(photos)).numpy()
    np.testing.assert_allclose(plain @ weight.T + bias, scores, rtol=0, atol=bound)
    assert vectors.shape == plain.shape


def test_small_images_are_enlarged_for_a_network_that_halves_them_often(cli, discs: Path, tmp_path: Path) -> None:
    recipe = json.loads(cli("train", "--images", discs, "-m", "vgg11", "--dry-run", "--json").out)
    assert (recipe["image"]["size"], recipe["model"]["size"], recipe["optim"]["lr"]) == (32, 32, 0.0025)
    vit = json.loads(cli("train", "--images", discs, "-m", "vit-small-28", "--dry-run", "--json").out)
    assert (vit["image"]["size"], vit["optim"]["kind"]) == (28, "adamw")
    arguments = ("-m", "vgg11", "--set", "image.size=13", "--out", tmp_path / "run")
    code, _, err = cli("train", "--images", discs, *arguments)
    assert (code, "size = 13 is too small to be halved by 5 stages" in err) == (1, True)


def test_an_autoencoder_asks_for_no_classes(cli, tmp_path: Path) -> None:
    """A folder of images, as they lie; then their codes."""
    rng = np.random.default_rng(3)
    photos = [paint(tmp_path / "album" / f"{i}.png", COLOURS["red"], rng) for i in range(60)]
    settings = [word for setting in [*SMALL, "train.steps=5", "optim.lr=0.01"] for word in ("--set", setting)]
    arguments = ("--model", "autoencoder", "--out", tmp_path / "run", "--device", "cpu", "--json")
    shown = cli("train", "--images", tmp_path / "album", *arguments, *settings)
    assert (shown.code, "input 13 × 13 pixels, no augmentation" in shown.err) == (0, True)
    recipe = clearformer.Recipe.read(tmp_path / "run" / "recipe.toml")
    assert (recipe.objective.kind, recipe.model.size, recipe.model.channels) == ("reconstruction", 13, 3)
    assert recipe.image.augment.crop == 0
    assert {"loss", "error"} == json.loads(shown.out)["valid"].keys()
    cli("embed", "--model", tmp_path / "run", "--out", tmp_path / "codes.npy", *photos[:7])
    assert np.load(tmp_path / "codes.npy").shape == (7, 32)
    lines = cli("evaluate", "-m", tmp_path / "run", "--images", tmp_path / "album", "--device", "cpu").out.splitlines()
    assert (lines[0].split()[0], lines[-1]) == ("error", "60 images")
    code, _, err = cli("train", "--images", tmp_path / "album", "--out", tmp_path / "r")
    assert (code, "all images are of one class, `image`" in err) == (1, True)


def test_an_autoencoder_takes_arrays_without_labels(cli, discs: Path, tmp_path: Path) -> None:
    """To learn from, to test on beside images that have classes, to evaluate and to plot."""
    pixels = np.random.default_rng(5).integers(0, 256, (41, 13, 13, 3), "uint8")
    np.savez(tmp_path / "bare.npz", images=pixels)
    settings = [word for setting in [*SMALL, "train.steps=3", "optim.lr=0.01"] for word in ("--set", setting)]
    for name, given in {"bare": (tmp_path / "bare.npz",), "both": (discs, "--test", tmp_path / "bare.npz")}.items():
        arguments = ("--model", "autoencoder", "--out", tmp_path / name, "--device", "cpu", *settings)
        shown = cli("train", "--images", *given, *arguments)
        assert shown.code == 0, shown.err
        told = cli("evaluate", "-m", tmp_path / name, "--images", tmp_path / "bare.npz", "--json", "--device", "cpu")
        assert json.loads(told.out)["images"] == 41
    assert "1 classes" not in shown.err
    report = json.loads((tmp_path / "both" / "report.json").read_text())
    assert report["test"]["images"] == 41
    arguments = ("--images", tmp_path / "bare.npz", "--json", "--out", tmp_path / "x.png")
    assert set(json.loads(cli("plot", "embeddings", "-m", tmp_path / "bare", *arguments).out)["labels"]) == {"image"}
    code, _, err = cli("train", "--images", tmp_path / "bare.npz", "--out", tmp_path / "r")
    assert (code, "has no array `labels`" in err) == (1, True)


def test_what_a_user_can_mend_is_a_sentence(cli, eye: Path, discs: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xff")
    (tmp_path / "one" / "cats").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    paint(tmp_path / "one" / "cats" / "1.png", COLOURS["red"], np.random.default_rng(0))
    for arguments, told in {
        ("classify", "-m", eye, tmp_path / "broken.jpg"): "broken.jpg cannot be read: it is damaged or not an image",
        ("classify", "-m", eye, tmp_path / "none.jpg"): "none.jpg does not exist",
        ("train", "--images", tmp_path / "empty"): "empty is empty",
        ("train", "--images", tmp_path / "one", "--out", tmp_path / "r"): "all images are of one class, `cats`",
        ("train", "--images", discs, "--labels", "x.tsv"): "--labels and --images cannot be combined",
        ("train", "--images", discs, "-m", "gpt"): "gpt is a model for causal-lm, not for images",
        ("train", "--images", discs, "--set", "image.size=0"): "[image] size = 0 is too small",
        ("evaluate", "-m", eye, "--images", tmp_path / "one"): "not occur in the training data: `cats`",
        ("evaluate", "-m", eye, "--labels", discs): "is an image classifier: it cannot be evaluated on --labels",
        ("score", "-m", eye, "a text"): "is an image classifier: it cannot score",
        ("translate", "-m", eye, "a text"): "is an image classifier: it cannot translate",
        (
            "finetune",
            "-m",
            eye,
            "--images",
            discs,
            "--method",
            "prefix",
        ): "prefix tuning is not supported for image models",
    }.items():
        code, out, err = cli(*arguments)
        assert (code, out) == (1, ""), arguments
        assert told in err
        assert "\nhint: " in err
        assert "Traceback" not in err

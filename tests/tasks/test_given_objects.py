"""Python objects instead of paths: the same run as with a file, which can be resumed, evaluated and trained again."""

import errno
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

import clearformer
from clearformer.data.pairs import read_pairs
from clearformer.errors import ClearformerError, ConfigError, DataError, MachineError
from clearformer.tasks import collect
from clearformer.tasks.given_objects import as_files

from .tones import RATE, WORDS, tone

DRAW = Random(0)
NOUNS = ["dog", "cat", "man", "bike", "house", "boat", "girl"]
PAIRS = [(" ".join(words), " ".join(words).upper()) for words in (DRAW.choices(NOUNS, k=4) for _ in range(240))]
REVIEWS = [(f"{word} {i}", word) for i in range(60) for word in ("good", "bad")]
SMALL = ["train.steps=3", "train.validate_every=3", "train.log_every=1"]
TINY = [*SMALL, "model.d_model=16", "model.n_heads=2", "text.strict=false"]


def losses(run: Path) -> list[Any]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if "loss" in row]


def recipe(run: Path) -> dict[str, Any]:
    return clearformer.Recipe.read(run / "recipe.toml").tables()


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "listed"
    clearformer.train(pairs=PAIRS, out=out, settings=TINY, device="cpu")
    return out


def test_a_list_trains_as_its_file_does(listed: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS))
    clearformer.train(pairs=tmp_path / "pairs.tsv", out=tmp_path / "run", settings=TINY, device="cpu")
    assert losses(listed) == losses(tmp_path / "run")
    train = recipe(listed)["data"]["train"]
    assert train["given"] == "a list of 240 pairs"
    assert train["path"] == str(listed / "given" / "train" / "pairs.jsonl")
    assert [tuple(pair) for pair in read_pairs(Path(train["path"]), ("source", "target"))] == PAIRS
    assert "given" not in recipe(tmp_path / "run")["data"]["train"]


def test_a_run_on_a_list_is_resumed_and_evaluated_and_its_recipe_trained_again(listed: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(listed, run)
    text = (run / "recipe.toml").read_text().replace(str(listed), str(run))
    (run / "recipe.toml").write_text(text)
    assert clearformer.train(out=run, resume=True, settings=["train.steps=5"], device="cpu")["steps"] == 5
    shutil.rmtree(run / "data")  # as if the run had been killed while it stored the examples
    (run / "last.safetensors").unlink()
    assert clearformer.train(out=run, resume=True, settings=["train.steps=3"], device="cpu")["steps"] == 3
    again = tmp_path / "again"
    clearformer.train(run / "recipe.toml", out=again, settings=["train.steps=3"], device="cpu")
    assert losses(again) == losses(listed)
    assert Path(recipe(again)["data"]["train"]["path"]) == again / "given" / "train" / "pairs.jsonl"
    by_list = clearformer.evaluate(listed, pairs=PAIRS[:9], device="cpu")
    frame = {"id": list(range(9)), "de": [b for _, b in PAIRS[:9]], "en": [a for a, _ in PAIRS[:9]]}
    by_columns = clearformer.evaluate(listed, pairs=frame, columns=("en", "de"), device="cpu")
    assert by_list == by_columns
    assert by_list["sentences"] == 9


def test_a_plan_can_be_trained_and_objects_be_every_split(tmp_path: Path, capsys) -> None:
    (tmp_path / "test.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS[:5]))
    rows = ({"de": b, "n": i, "en": a} for i, (a, b) in enumerate(PAIRS))
    data = {"pairs": rows, "valid": PAIRS[:7], "test": tmp_path / "test.tsv"}
    plan = clearformer.plan(**data, columns=None, settings=TINY)
    assert plan.data.train.columns == ("de", "en")
    assert "a generator of 240 pairs: using columns de and en" in capsys.readouterr().err
    assert Path(plan.data.train.path).is_file()
    for name in ("a", "b"):
        report = clearformer.train(plan, out=tmp_path / name, device="cpu")
        assert report["test"]["sentences"] == 5
    data = recipe(tmp_path / "b")["data"]
    assert [data[split].get("given") for split in ("train", "valid", "test")] == [
        "a generator of 240 pairs",
        "a list of 7 pairs",
        None,
    ]


def files(**data: Any) -> Any:
    given = collect(data)
    assert given is not None
    return as_files(given)


def test_numbers_choose_columns_of_tuples_and_mixtures_are_refused(tmp_path: Path) -> None:
    rows = [(i, a, b) for i, (a, b) in enumerate(PAIRS)]
    given = files(pairs=rows, columns=(2, 1))
    assert next(read_pairs(given.files, given.options["columns"])) == PAIRS[0][::-1]
    with pytest.raises(ConfigError, match=r"columns: there is no column 3\nhint: the columns are source, target"):
        files(pairs=rows, columns=(0, 3))
    with pytest.raises(ConfigError, match="numbers of columns cannot be used for both"):
        files(pairs=rows, valid="v.tsv", columns=(0, 1))
    for paths in ("a.tsv", Path("a.tsv"), ("a.en", "a.de"), ["a.en", Path("a.de")]):
        assert files(pairs=paths).files == paths
    assert files(text=["a.txt", "b.txt"]).files == ["a.txt", "b.txt"]
    assert files(text=["A dog.", "A cat."]).titles == {"train": "a list of 2 texts"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"pairs": 5}, "pairs= cannot be an int"),
        ({"text": 5}, "text= cannot be an int"),
        ({"labels": object()}, "labels= cannot be an object"),
        ({"images": 5}, "images= cannot be an int"),
        ({"recordings": 5.0}, "recordings= cannot be a float"),
        ({"pairs": PAIRS, "valid": 3}, "valid= cannot be an int"),
        ({"pairs": ["a", "b", "c"]}, "pairs= is a list of strings"),
        ({"labels": ["good", "bad"]}, "labels= is a list of strings"),
        ({"pairs": [{"x": "a", "y": "b"}]}, "a list of 1 pair: the names of the columns are not recognised"),
        ({"pairs": [(1, "b")]}, "a list of 1 pair, row 1: `source` is of type int, not a string"),
        ({"labels": [("a", "x"), ("b", None)]}, "a list of 2 labelled texts, row 2: the label is empty"),
        ({"images": [(None, "x")]}, "a list, row 1: a NoneType with values of type object"),
        ({"images": [(np.zeros((5, 5), "uint8"), "a/b")]}, "`a/b` cannot be the name of a class"),
        ({"images": [("none.png", "a")]}, r"none\.png does not exist"),
        ({"images": [(b"none", "a")]}, "bytes that are not an image"),
        ({"images": (np.zeros((3, 5, 5)), np.zeros(2))}, "arrays of different lengths, 3 and 2"),
        ({"recordings": [(np.zeros(100), "low")]}, "samples without their rate"),
        ({"recordings": [("none.wav", "low")]}, r"none\.wav does not exist"),
        ({"recordings": [(None, "low")]}, "a list, row 1: a recording cannot be a NoneType"),
        ({"text": ["dog 1003"]}, "no text is left to train on"),
        ({"text": ["bok.txt", "A dog."]}, r"bok\.txt does not exist"),
    ],
)
def test_unusable_objects_are_one_sentence(data: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ClearformerError, match=rf"{message}.*\nhint: "):
        clearformer.train(**data, out=tmp_path / "run", device="cpu")


def test_a_full_disk_is_one_sentence_and_errors_of_an_iterator_are_its_own(tmp_path: Path, monkeypatch) -> None:
    def rows(error: Exception) -> Iterator[tuple[str, str]]:
        yield from PAIRS
        raise error

    with pytest.raises(MachineError, match=r"pairs= cannot be stored in .*: the disk is full\nhint: "):
        clearformer.train(pairs=rows(OSError(errno.ENOSPC, "No space left on device")), out=tmp_path / "run")
    for error in (FileNotFoundError(errno.ENOENT, "none"), KeyError("x")):
        with pytest.raises(type(error)):
            clearformer.train(pairs=rows(error), out=tmp_path / "run")
    monkeypatch.setattr(shutil, "copytree", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left")))
    with pytest.raises(MachineError, match=r"a list of 240 pairs cannot be copied to .*No space left.*\nhint: "):
        clearformer.train(pairs=PAIRS, out=tmp_path / "run", settings=TINY, device="cpu")


class Reviews(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return len(REVIEWS)

    def __getitem__(self, i: int) -> tuple[str, str]:
        return REVIEWS[i % len(REVIEWS)]


def reviews(kind: str) -> Any:
    texts, labels = map(list, zip(*REVIEWS))
    if kind == "torch":
        return Reviews()
    if kind == "datasets":
        datasets = pytest.importorskip("datasets")
        names = datasets.ClassLabel(names=["bad", "good"])
        features = datasets.Features(review=datasets.Value("string"), sentiment=names)
        return datasets.Dataset.from_dict(
            {"review": texts, "sentiment": [names.str2int(label) for label in labels]}, features
        )
    return pytest.importorskip(kind).DataFrame({"review": texts, "sentiment": labels})


def test_labels_of_every_library_train_the_same_classifier(tmp_path: Path) -> None:
    runs = []
    for kind in ("torch", "datasets", "pandas", "polars"):
        out = tmp_path / kind
        clearformer.train(labels=reviews(kind), out=out, settings=SMALL, device="cpu")
        assert json.loads((out / "classes.json").read_text()) == ["bad", "good"]
        assert clearformer.evaluate(out, labels=reviews(kind), device="cpu")["examples"] == len(REVIEWS)
        runs.append(losses(out))
    assert runs[1:] == runs[:1] * 3
    report = clearformer.finetune(
        tmp_path / "pandas", labels=reviews("polars"), out=tmp_path / "tuned", settings=SMALL, device="cpu"
    )
    assert report["steps"] == 3
    assert recipe(tmp_path / "tuned")["data"]["train"]["given"] == "a polars DataFrame of 120 labelled texts"


def test_labelled_words_and_texts_are_lists(tmp_path: Path) -> None:
    words = [(text.split(), ["word", "number"]) for text, _ in REVIEWS]
    clearformer.train(labels=words, out=tmp_path / "tags", settings=SMALL, device="cpu")
    assert recipe(tmp_path / "tags")["objective"]["kind"] == "token-classification"
    assert clearformer.evaluate(tmp_path / "tags", labels=words[:5], device="cpu")["sentences"] == 5
    texts = [f"{a}\n{b}" for a, b in PAIRS]
    small = [*SMALL, "model.d_model=16", "model.n_heads=2", "model.n_layers=1"]
    clearformer.train(text=iter(texts), out=tmp_path / "text", settings=small, device="cpu")
    assert recipe(tmp_path / "text")["data"]["train"]["given"] == "an iterator of 240 texts"
    assert clearformer.evaluate(tmp_path / "text", text=texts[:9], device="cpu")["tokens"] > 0


def squares() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 99, (40, 12, 12), dtype="uint8")
    images[::2, 3:9, 3:9] += 120
    return images, np.array(["square", "noise"] * 20)


class Pictures:
    """A dataset in the style of torchvision: images of Pillow, numbered classes with names."""

    classes = ("noise", "square")

    def __len__(self) -> int:
        return 40

    def __getitem__(self, i: int) -> tuple[Any, int]:
        images, labels = squares()
        image = pytest.importorskip("PIL.Image").fromarray(images[i % 40])
        return image, self.classes.index(labels[i % 40])


def pictures(kind: str) -> Any:
    images, labels = squares()
    if kind == "tensors":
        return [(torch.from_numpy(image)[None] / 255, str(label)) for image, label in zip(images, labels)]
    if kind == "datasets":
        datasets = pytest.importorskip("datasets")
        features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=["noise", "square"]))
        rows = {"image": [Pictures()[i][0] for i in range(40)], "label": [Pictures()[i][1] for i in range(40)]}
        return datasets.Dataset.from_dict(rows, features)
    return (images, labels) if kind == "arrays" else Pictures()


@pytest.mark.slow
def test_images_of_every_kind_train_the_same_classifier(tmp_path: Path) -> None:
    runs = []
    for kind in ("arrays", "tensors", "torchvision", "datasets"):
        out = tmp_path / kind
        settings = [*SMALL, "train.tokens=8", "image.size=12"]
        clearformer.train(images=pictures(kind), out=out, settings=settings, device="cpu")
        assert json.loads((out / "classes.json").read_text()) == ["noise", "square"]
        runs.append(losses(out))
    assert runs[1:] == runs[:1] * 3
    assert recipe(out)["data"]["train"]["path"] == str(out / "given" / "train" / "images")
    assert clearformer.evaluate(out, images=pictures("arrays"), device="cpu")["images"] == 40


def recordings() -> Iterator[tuple[Any, str]]:
    draw = Random(1)
    for _ in range(40):
        word = draw.choice(list(WORDS))
        yield (tone(word, draw.uniform(0.1, 0.2)), RATE), word


def test_recordings_are_samples_with_their_rate(tmp_path: Path) -> None:
    settings = [*SMALL, "model.d_model=8", "sound.rate=2000", "sound.n_mels=11"]
    out = tmp_path / "run"
    clearformer.train(recordings=recordings(), out=out, settings=settings, device="cpu")
    assert recipe(out)["data"]["train"]["given"] == "a generator of 40 recordings"
    rows = [{"audio": {"array": sound, "sampling_rate": rate}, "text": word} for (sound, rate), word in recordings()]
    assert clearformer.evaluate(out, recordings=rows, device="cpu")["sentences"] == 40
    rows[0]["text"] = "low " * 999  # longer than a file name
    assert clearformer.evaluate(out, recordings=rows, device="cpu")["words"] == 999 + 39
    paths = sorted((out / "given" / "train").glob("*.wav"))
    assert clearformer.evaluate(out, recordings=[(path, "low") for path in paths], device="cpu")["sentences"] == 40
    with pytest.raises(DataError, match="cannot be a function"):
        clearformer.evaluate(out, recordings=recordings, device="cpu")

"""Labelled images to a classifier: a rule learnt in seconds, resumed bit for bit, tuned to other classes."""

import gc
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import clearformer
from clearformer import fit
from clearformer.checkpoint import RunFolder, load_tensors
from clearformer.data.fitting import Fitted
from clearformer.data.image_store import ImageStore
from clearformer.data.images import ImageCorpora
from clearformer.errors import CheckpointError, ConfigError, DataError
from clearformer.handles.image_classifier import ImageClassifier
from clearformer.loading.folder import read_recipe
from clearformer.loading.open import open_model
from clearformer.models.build import outline
from clearformer.recipe import Recipe
from clearformer.tasks.auto.images import plan_finetune_images
from clearformer.tasks.image_classification import ImageClassificationTask
from clearformer.tasks.images import ImageBatches, divide
from clearformer.tasks.task import Request
from clearformer.training.distributed import World
from clearformer.training.feed import Steps
from clearformer.training.journal import read_metrics
from clearformer.verbs.load import load
from clearformer.verbs.merge import merge

pytestmark = pytest.mark.usefixtures("no_images")
SIZE = 11
NETWORK = {"kind": "resnet", "stem": "3x3", "stem_width": 8, "block": "basic", "depths": [1, 1], "widths": [8, 16]}
SHAPES = ("down", "ring", "slope")


def draw(shape: str, rng: np.random.Generator) -> np.ndarray:
    """A bar, a frame or a diagonal somewhere in noise: uint8 (11, 11)."""
    image = rng.integers(0, 90, (SIZE, SIZE), "uint8")
    y, x = rng.integers(0, 4, 2)
    match shape:
        case "down":
            image[y : y + 7, x + 3] = 220
        case "ring":
            image[y : y + 6, x : x + 6] = 220
            image[y + 1 : y + 5, x + 1 : x + 5] = 40
        case "slope":
            image[np.arange(y, y + 7), np.arange(x, x + 7)] = 220
    return image


@pytest.fixture(scope="module")
def shapes(tmp_path_factory) -> Path:
    rng = np.random.default_rng(0)
    labels = [SHAPES[i % 3] for i in range(600)]
    path = tmp_path_factory.mktemp("shapes") / "shapes.npz"
    np.savez(path, images=np.stack([draw(label, rng) for label in labels]), labels=labels)
    return path


def recipe(path: Path, **tables: Any) -> Recipe:
    made: dict[str, Any] = {
        "data": {"train": {"path": str(path)}, "held_out": 0.2, "held_out_test": 0.2},
        "image": {"size": SIZE, "channels": 1, "augment": {"crop": 1, "flip": False, "erase": 0.1}},
        "model": NETWORK,
        "optim": {"kind": "nesterov", "lr": 0.1, "weight_decay": 5e-4},
        "schedule": {"kind": "linear", "warmup": 10},
        "train": {"tokens": 31, "steps": 60, "validate_every": 30, "save_every": 30, "log_every": 10, "ema": 0.9},
    }
    return Recipe.parse({**made, **{name: made.get(name, {}) | table for name, table in tables.items()}}, "x.toml")


@pytest.fixture(scope="module")
def run(shapes: Path, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "shapes"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "draw_curves", lambda *_: None)
        clearformer.train(recipe(shapes), out=folder, device="cpu")
    return folder


def test_a_rule_is_learnt(run: Path, shapes: Path) -> None:
    report = json.loads((run / "report.json").read_text())
    assert report["test"]["accuracy"] > 0.9
    assert report["valid"]["accuracy"] > 0.9
    assert report["test"]["top5"] == 1  # of three
    assert report["images"] == 60 * 31
    viewer = load(run)
    assert isinstance(viewer, ImageClassifier)
    assert viewer.classes == sorted(SHAPES)
    saved = Recipe.read(run / "recipe.toml")
    store = ImageStore(run / "data" / "train.safetensors")
    assert (saved.image.mean, saved.image.std) == (store.mean, store.std)  # known to whoever loads it
    assert (saved.model.n_classes, saved.model.channels, saved.model.size) == (3, 1, SIZE)
    lines = [line for line in read_metrics(run / "metrics.jsonl") if line["kind"] == "train"]
    assert "images_per_s" in lines[0]


def test_the_handle_says_what_validation_said(run: Path) -> None:
    report, store = json.loads((run / "report.json").read_text()), ImageStore(run / "data" / "valid.safetensors")
    scores = load(run).logits(store.pixels)
    right = (scores.argmax(-1).numpy() == store.classes).mean()
    assert right == report["valid"]["accuracy"]


def test_a_cut_training_goes_on_bit_for_bit(shapes: Path, goes_on) -> None:
    augment = {"crop": 1, "flip": True, "erase": 0.5, "randaugment": 1, "mixup": 0.3}
    every = {"validate_every": 10, "save_every": 5, "steps": 20, "ema": 0.9}
    saved = goes_on(recipe(shapes, image={"augment": augment}, train=every))
    assert {"model.stem.norm.running_mean", "average.stem.norm.running_mean"} <= saved


def test_batches_are_full_and_every_order_another(run: Path) -> None:
    store = ImageStore(run / "data" / "train.safetensors")
    steps = Steps(ImageBatches(store, 31, 7), 2)
    first, second = ([rows for group in steps.plan(epoch) for rows in group] for epoch in (0, 1))
    assert {len(rows) for rows in first} == {31}
    assert len({*np.concatenate(first)}) == len(store) // 31 * 31  # none twice, but those that fill the last group
    assert not np.array_equal(first[0], second[0])
    assert np.array_equal(first[3], ImageBatches(store, 31, 7).steps(0, 2)[1][1])
    batches, count = steps.load(0, 0, World(1, 2))
    assert (len(batches), count) == (1, 62)
    assert batches[0].pixels.numpy().tobytes() == store.pixels[first[1]].tobytes()
    assert len(ImageBatches(store, 10_000, 0).steps(0, 1)) == 1


def test_images_appear_when_they_are_stored_and_not_before(shapes: Path, tmp_path: Path) -> None:
    """What is decoded first settles the recipe; a task that goes away before it is stored leaves nothing."""
    run = RunFolder(tmp_path / "run")
    task = ImageClassificationTask(recipe(shapes), run)
    task.learn(None, None)
    settled = task.settle()
    assert settled.image.mean is not None
    assert not list(run.data.glob("*.safetensors"))
    assert list(run.data.iterdir())
    del task
    gc.collect()
    assert not list(run.data.iterdir())
    task = ImageClassificationTask(settled, run)  # as recipe.toml has it
    task.classes = sorted(SHAPES)
    task.store()
    task.save()
    task.load()
    assert task.settle() == settled
    assert sorted(path.name for path in run.data.iterdir()) == [
        "test.safetensors",
        "train.safetensors",
        "valid.safetensors",
    ]


def test_a_preparation_that_was_killed_is_done_again(shapes: Path, tmp_path: Path, monkeypatch) -> None:
    """Between recipe.toml and the first image."""
    with monkeypatch.context() as patch:
        patch.setattr(ImageClassificationTask, "store", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            clearformer.train(recipe(shapes, train={"steps": 2}), out=tmp_path / "run", device="cpu")
    before = (tmp_path / "run" / "recipe.toml").read_text()
    clearformer.train(resume=True, out=tmp_path / "run", device="cpu")
    assert (tmp_path / "run" / "recipe.toml").read_text() == before
    assert Recipe.read(tmp_path / "run" / "recipe.toml").image.mean is not None


def test_cudnn_searches_for_kernels_while_the_steps_are_in_use(run: Path, monkeypatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    for is_deterministic in (False, True):
        saved = Recipe.read(run / "recipe.toml", [f"train.deterministic={str(is_deterministic).lower()}"])
        steps = ImageClassificationTask(saved, RunFolder(run)).steps(World())
        assert torch.backends.cudnn.benchmark is not is_deterministic
        del steps
        assert not torch.backends.cudnn.benchmark


def test_other_classes_get_another_head(run: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    labels = [SHAPES[i % 2] for i in range(200)]
    np.savez(tmp_path / "two.npz", images=np.stack([draw(label, rng) for label in labels]), labels=labels)
    for method in ("full", "head"):
        out = tmp_path / method
        settings = ["train.steps=60", "data.held_out=0.2", "data.held_out_test=0.2", "optim.lr=0.01", "train.tokens=31"]
        report = clearformer.finetune(run, images=tmp_path / "two.npz", method=method, out=out, settings=settings)
        assert report["test"]["accuracy"] > 0.9
        assert load(out).classes == ["down", "ring"]
        assert Recipe.read(out / "recipe.toml").image.mean == Recipe.read(run / "recipe.toml").image.mean
    kept, _ = load_tensors(tmp_path / "head" / "model.safetensors")
    assert kept.keys() == {"classifier.weight", "classifier.bias"}
    base, tuned = open_model(run).network.state_dict(), open_model(tmp_path / "head").network.state_dict()
    assert all(tuned[name].equal(base[name]) for name in base if not name.startswith("classifier"))
    before = json.loads((tmp_path / "head" / "report.json").read_text())["test"]["accuracy"]
    pixels = ImageStore(tmp_path / "head" / "data" / "test.safetensors")
    assert (load(tmp_path / "head").logits(pixels.pixels).argmax(-1).numpy() == pixels.classes).mean() == before


VIT = {
    "kind": "vit",
    "size": SIZE,
    "patch": SIZE,
    "pooling": "mean",
    "n_layers": 1,
    "d_model": 14,
    "d_ff": 13,
    "n_heads": 2,
}
GOOGLENET = {"kind": "googlenet", "stages": [[[2, 0, 3, 2, 1, 2]], [[3, 2, 3, 2, 2, 2]]], "auxiliary": ["4a"]}


@pytest.mark.parametrize(("network", "method"), [(VIT, "lora"), (GOOGLENET | {"stem": False}, "full")])
def test_other_networks_are_tuned(network: dict[str, Any], method: str, shapes: Path, tmp_path: Path) -> None:
    """LoRA on attention; and auxiliary networks, which a tuning does without."""
    short = {"steps": 5, "validate_every": 5, "save_every": 5}
    first = Recipe.parse({**recipe(shapes, train=short).tables(), "model": network}, "x.toml")
    clearformer.train(first, out=tmp_path / "base", device="cpu")
    settings = ["train.steps=5", "data.train.names=['a', 'b']"]
    rng = np.random.default_rng(5)
    images = np.stack([draw(SHAPES[i % 2], rng) for i in range(60)])
    np.savez(tmp_path / "two.npz", images=images, labels=np.arange(60) % 2)
    clearformer.finetune(
        tmp_path / "base", images=tmp_path / "two.npz", method=method, out=tmp_path / "run", settings=settings
    )
    viewer, base = load(tmp_path / "run"), open_model(tmp_path / "base").network.state_dict()
    assert viewer.classes == ["a", "b"]
    assert getattr(viewer.model.config, "auxiliary", ()) == ()
    if method == "lora":
        kept, _ = load_tensors(tmp_path / "run" / "model.safetensors")
        assert {name.split(".")[-1] for name in kept} == {"A", "B", "weight", "bias"}
        tuned = viewer.model.state_dict()
        assert tuned["patches.conv.weight"].equal(base["patches.conv.weight"])
        merge(tmp_path / "run", tmp_path / "merged")
        merged = load(tmp_path / "merged")
        torch.testing.assert_close(merged.logits(images[:3, None]), viewer.logits(images[:3, None]))
        assert merged.classes == viewer.classes
    assert viewer.logits(images[:3, None]).shape == (3, 2)


def test_what_is_frozen_stays_what_it_was(run: Path, shapes: Path, tmp_path: Path) -> None:
    """Batch norms' statistics too: they are loaded with the base."""
    request = Request({"train": {"path": shapes}}, None, ["train.steps=5"], "cpu", Recipe.parse, "head")
    chosen = plan_finetune_images(request, run, read_recipe(run)).recipe
    trainer, task = fit.set_up(chosen, RunFolder(tmp_path / "run"), torch.device("cpu"), World(), None)
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    trainer.train(task.steps(World()))
    after = trainer.model.state_dict()
    assert {name for name in after if not after[name].equal(before[name])} == {"classifier.weight", "classifier.bias"}


def test_sizes_follow_the_images_or_the_model(shapes: Path, tmp_path: Path) -> None:
    free = recipe(shapes, model={"size": 13, "channels": 3})
    told = ImageClassificationTask(free, RunFolder(tmp_path)).recipe
    assert (told.image.size, told.model.size, told.model.channels) == (SIZE, SIZE, 1)
    bare = Recipe.parse({**free.tables(), "image": {}}, "x.toml")
    told = ImageClassificationTask(bare, RunFolder(tmp_path)).recipe
    assert (told.image.size, told.image.channels, told.model.size) == (13, 3, 13)


def write_folder(root: Path, **classes: int) -> Path:
    rng = np.random.default_rng(3)
    for name, n in classes.items():
        (root / name).mkdir(parents=True)
        for i in range(n):
            Image.fromarray(draw(SHAPES[len(name) % 3], rng)).save(root / name / f"{i}.png")
    return root


def test_bad_folders_are_said_in_a_sentence(tmp_path: Path) -> None:
    one = write_folder(tmp_path / "one", cats=7)
    with pytest.raises(DataError, match="all images are of one class, `cats`"):
        clearformer.train(recipe(one), out=tmp_path / "run", device="cpu")
    broken = write_folder(tmp_path / "broken", cats=3, dogs=3)
    for path in broken.rglob("*.png"):
        path.write_bytes(b"not an image")
    with pytest.raises(DataError, match="the train split has no images"):
        clearformer.train(recipe(broken), out=tmp_path / "run2", device="cpu")
    assert not (tmp_path / "run2" / "data" / "train.safetensors").exists()
    with pytest.raises(DataError, match="6 images, but none can be read"):
        clearformer.plan(images=broken)


def test_few_images_leave_one_of_each_class_to_validate_on() -> None:
    """None of them has a place in the share; the same ones are chosen in any order, and the test keeps its own."""
    data = ImageCorpora(train={"path": "x"}, held_out=0.1, held_out_test=0.2)
    images = [
        Fitted(np.zeros((1, SIZE, SIZE), "uint8"), label, place)
        for label, place in zip("aaaabbcda", [0.7, 0.2, 0.4, 0.5, 0.9, 0.8, 0.6, 0.11, 0.4])
    ]
    splits = [split for split, _ in divide(images, data)]
    assert splits == ["train", "test", "valid", "train", "train", "valid", "train", "test", "valid"]
    assert [split for split, _ in divide(images[::-1], data)] == splits[::-1]
    assert {split for split, _ in divide(images, data.changed(valid={"path": "y"}))} == {"train", "test"}
    held = images[4]._replace(place=0.05)
    assert [split for split, _ in divide([*images, held], data)] == [data.split_of(p.place) for p in [*images, held]]


def test_three_images_of_each_class_are_enough(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "few", cats=3, dogs=3)
    few = {"held_out": 0.001, "held_out_test": 0.0}
    report = clearformer.train(
        recipe(folder, data=few, train={"steps": 2, "tokens": 4}), out=tmp_path / "run", device="cpu"
    )
    assert report["valid"]["accuracy"] >= 0
    train, valid = (ImageStore(tmp_path / "run" / "data" / f"{split}.safetensors") for split in ("train", "valid"))
    assert (sorted(train.classes.tolist()), sorted(valid.classes.tolist())) == ([0, 0, 1, 1], [0, 1])


def test_damaged_files_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_folder(tmp_path / "pets", cats=40, doggies=40)
    for i in range(7):
        (folder / "cats" / f"{i}.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    short = {"steps": 5, "tokens": 7}
    clearformer.train(recipe(folder, train=short), out=tmp_path / "run", device="cpu")
    err = capsys.readouterr().err
    assert err.count("cannot be read: it is damaged") == 5
    assert "left out: 2 more, 7 images in total" in err
    stores = [ImageStore(tmp_path / "run" / "data" / f"{split}.safetensors") for split in ("train", "valid", "test")]
    assert sum(map(len, stores)) == 73


def test_strange_classes_are_named(run: Path, shapes: Path, tmp_path: Path) -> None:
    other = write_folder(tmp_path / "other", down=2, zebra=2)
    with pytest.raises(DataError, match="not occur in the training data: `zebra`"):
        clearformer.evaluate(run, images=other, device="cpu")
    with pytest.raises(DataError, match="1 label in the test data does not occur in the training data: `zebra`"):
        clearformer.train(recipe(shapes, data={"test": {"path": str(other)}}), out=tmp_path / "run", device="cpu")
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    (copy / "classes.json").write_text('["a", "b", "c"]')
    with pytest.raises(CheckpointError, match=r"classes\.json does not match the weights"):
        load(copy)


def test_models_of_other_kinds_are_refused(run: Path, shapes: Path, tiny_bert: Path, reviews: Path) -> None:
    with pytest.raises(ConfigError, match="is a model for masked-lm"):
        clearformer.finetune(tiny_bert, images=shapes)
    with pytest.raises(ConfigError, match="is a model for image-classification"):
        clearformer.finetune(run, labels=reviews)
    with pytest.raises(ConfigError, match="prefix tuning is not supported"):
        clearformer.finetune(run, images=shapes, method="prefix")
    with pytest.raises(ConfigError, match="no layer `q` to adapt"):
        clearformer.finetune(run, images=shapes, method="lora", out=run.parent / "lora", device="cpu")
    assert not (run.parent / "lora").exists()
    with pytest.raises(ConfigError, match="gpt is a model for causal-lm, not for images"):
        clearformer.plan(images=shapes, model="gpt")
    with pytest.raises(CheckpointError, match="is an image classifier: it cannot be evaluated on --labels"):
        clearformer.evaluate(run, labels=reviews)


def test_a_resnet_by_name_is_as_large_as_one_chosen(shapes: Path) -> None:
    assert clearformer.plan(images=shapes, model="resnet") == clearformer.plan(images=shapes)


@pytest.mark.parametrize(
    ("model", "side", "preset", "size"),
    [
        ("vit", 23, "vit-small-28", 28),
        ("vit", 29, "vit-small-32", 32),
        ("vit", 61, "vit-ti-16", 64),
        ("vgg", 23, "vgg11-small", 32),
        ("vgg", 61, "vgg11-small", 32),
    ],
)
def test_a_name_without_a_size_means_one_that_suits_the_images(
    tmp_path: Path, model: str, side: int, preset: str, size: int
) -> None:
    np.savez(tmp_path / "x.npz", images=np.zeros((7, side, side), "uint8"), labels=np.arange(7) % 3)
    chosen = clearformer.plan(images=tmp_path / "x.npz", model=model, settings=["model.dropout=0.3"], device="cpu")
    assert (chosen.model.preset, chosen.model.size, chosen.image.size) == (preset, size, size)
    assert (chosen.model.n_classes, chosen.model.dropout) == (3, 0.3)
    assert sum(p.numel() for p in outline(chosen.model).parameters()) < 10e6

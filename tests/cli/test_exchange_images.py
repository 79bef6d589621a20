"""Networks for images from elsewhere and back, and every verb on them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from transformers import (
    AutoImageProcessor,
    AutoModelForImageClassification,
    ResNetConfig,
    ResNetForImageClassification,
    ViTConfig,
    ViTForImageClassification,
)

from clearformer.checkpoint import weights_of
from clearformer.data.pixels import ImageConfig
from clearformer.interop.pixels import write_image
from clearformer.interop.torchvision.convert import export_weights
from clearformer.loading.open import open_model
from clearformer.models.build import build_model, model_config
from clearformer.verbs.import_ import import_model

from ..bounds import float32_bound_of

CliCall = Callable[..., Any]
NAMES = ["dog", "cat", "tree"]
CIFAR = Path(__file__).parents[3] / "shared/data/cifar10-resnet-weights"
CIFAR_NAMES = "airplane,automobile,bird,cat,deer,dog,frog,horse,ship,truck"


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    noise = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


@pytest.fixture(params=["vit", "resnet"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A small random network as Hugging Face's libraries leave it."""
    torch.manual_seed(1)
    labels = {"id2label": dict(enumerate(NAMES)), "label2id": {name: k for k, name in enumerate(NAMES)}}
    model: Any
    if request.param == "vit":
        sizes = {"hidden_size": 14, "num_hidden_layers": 2, "num_attention_heads": 7, "intermediate_size": 11}
        model = ViTForImageClassification(ViTConfig(image_size=28, patch_size=7, **sizes, **labels))
    else:
        model = ResNetForImageClassification(
            ResNetConfig(embedding_size=5, hidden_sizes=[8, 12], depths=[1, 2], **labels)
        )
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(tmp_path / "hub")
    write_image(
        tmp_path / "hub", ImageConfig(size=28, channels=3, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.25), fit="stretch")
    )
    return tmp_path / "hub"


def their_model(folder: Path, photo: Path) -> tuple[Any, torch.Tensor]:
    pixels = AutoImageProcessor.from_pretrained(folder)(Image.open(photo), return_tensors="pt")["pixel_values"]
    return AutoModelForImageClassification.from_pretrained(folder).eval(), pixels


@torch.no_grad()
def by_them(folder: Path, photo: Path) -> dict[str, float]:
    model, pixels = their_model(folder, photo)
    found = model(pixels).logits.softmax(1)[0].tolist()
    return {model.config.id2label[k]: p for k, p in enumerate(found)}


def bound_of(folder: Path, photo: Path) -> float:
    """What rounding may do to the probabilities; the first sums, over 3 · 7 · 7 pixels, are the longest."""
    model, pixels = their_model(folder, photo)
    return float32_bound_of(model, lambda other: other(pixels.to(other.dtype)).logits.softmax(1), n_terms=147)


def by_us(cli: CliCall, folder: Path, photo: Path) -> dict[str, float]:
    code, out, err = cli("classify", "-m", folder, photo, "--top", 3, "--json")
    assert (code, err) == (0, "")
    (row,) = json.loads(out)["images"]
    return {found["label"]: found["probability"] for found in row["top"]}


def test_a_published_network_classifies_as_it_does_there(
    cli: CliCall, folder: Path, photo: Path, tmp_path: Path
) -> None:
    """As it is, imported, and exported again."""
    wanted, bound = by_them(folder, photo), bound_of(folder, photo)
    assert by_us(cli, folder, photo) == pytest.approx(wanted, abs=bound, rel=0)
    report = import_model(folder, tmp_path / "run")
    assert report["format"] == "huggingface"
    assert by_us(cli, tmp_path / "run", photo) == pytest.approx(wanted, abs=bound, rel=0)
    assert cli("export", tmp_path / "run", tmp_path / "out").code == 0
    assert by_them(tmp_path / "out", photo) == pytest.approx(wanted, abs=bound, rel=0)
    assert cli("inspect", folder, "--json").code == 0
    assert cli("embed", "-m", folder, photo, "--out", tmp_path / "vectors.npy").code == 0


def test_a_published_network_learns_other_images(cli: CliCall, folder: Path, tmp_path: Path) -> None:
    for k, name in enumerate(("red", "blue")):
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(12):
            pixels = np.full((31, 29, 3), i, dtype=np.uint8)
            pixels[..., 2 * k] = 240
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{i}.png")
    steps = ("--set", "train.steps=2", "--set", "train.validate_every=2", "--device", "cpu")
    images = ("--images", tmp_path / "images", "--method", "head")
    tuned = cli("finetune", "-m", folder, *images, "--out", tmp_path / "tuned", *steps)
    assert (tuned.code, tuned.out) == (0, f"{tmp_path / 'tuned'}\n")
    found = by_us(cli, tmp_path / "tuned", tmp_path / "images" / "red" / "3.png")
    assert found.keys() == {"red", "blue"}


def test_classes_are_named_later(cli: CliCall, photo: Path, tmp_path: Path) -> None:
    config = model_config("resnet18").changed(n_classes=3, depths=(1, 1), widths=(5, 7), stem_width=5)
    torch.save(export_weights(weights_of(build_model(config)), config), tmp_path / "small.pth")
    run = tmp_path / "run"
    code, _, err = cli("import", tmp_path / "small.pth", run)
    hint = f"clearformer import {run} --classes NAMES"
    assert (code, "".join(err.split())) == (0, "".join(f"the classes have no names; to name them: {hint}".split()))
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    again = cli("import", tmp_path / "small.pth", run, "--classes", ",".join(NAMES))
    assert (again.code, again.err) == (
        1,
        f"error: {run} already contains small.pth\nhint: to name its classes: {hint}\n",
    )
    for names, message in (
        ("dog,cat", "3 classes, but --classes has 2 names"),
        (None, f"OUT is missing\nhint: give the run folder to write: clearformer import {run} OUT"),
    ):
        shown = cli("import", run, *([] if names is None else ["--classes", names]))
        assert (shown.code, shown.out) == (1, "")
        assert message in shown.err
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    code, out, err = cli("import", run, "--classes", ",".join(NAMES))
    assert (code, out, err) == (0, f"{run}\n", "")
    after = {path.name: path.read_bytes() for path in run.iterdir()}
    assert {name for name in after if after[name] != before.get(name)} == {"classes.json", "checksums.json"}
    assert by_us(cli, run, photo).keys() == {*NAMES}


def test_classes_of_a_trained_model_stay(cli: CliCall, run: Path) -> None:
    shown = cli("import", run, "--classes", "a,b")
    assert (shown.code, shown.out) == (1, "")
    assert "was trained here" in shown.err


def test_torchvisions_weights_come_and_go(cli: CliCall, photo: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = model_config("resnet18").changed(n_classes=3, depths=(1, 1), widths=(5, 7), stem_width=5)
    weights = weights_of(build_model(config))
    torch.save(export_weights(weights, config), tmp_path / "small.pth")
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    code, out, err = cli("import", tmp_path / "small.pth", tmp_path / "run", "--classes", tmp_path / "names.txt")
    assert (code, out, err) == (0, f"{tmp_path / 'run'}\n", "")
    assert by_us(cli, tmp_path / "run", photo).keys() == {*NAMES}
    assert open_model(tmp_path / "run").recipe.origin.format == "torchvision"  # type: ignore[union-attr]
    report = json.loads(cli("export", tmp_path / "run", tmp_path / "back", "--format", "torchvision", "--json").out)
    assert report == {"folder": str(tmp_path / "back"), "model_type": "resnet"}
    back, sent = load_file(tmp_path / "back/model.safetensors"), torch.load(tmp_path / "small.pth", weights_only=True)
    assert back.keys() == sent.keys()
    assert all(torch.equal(back[name], sent[name]) for name in sent)
    assert import_model(tmp_path / "back/model.safetensors", tmp_path / "again")["kind"] == "resnet"
    assert by_us(cli, tmp_path / "again", photo).keys() == {"0", "1", "2"}


@pytest.mark.data
@pytest.mark.parametrize("file", ["resnet20-12fca82f.th", "resnet56-4bfd9763.th"])
def test_cifars_networks_are_imported_and_classify(cli: CliCall, photo: Path, tmp_path: Path, file: str) -> None:
    if not (CIFAR / file).exists():
        pytest.skip("needs ../shared/data")
    report = json.loads(cli("import", CIFAR / file, tmp_path / "run", "--classes", CIFAR_NAMES, "--json").out)
    assert report["parameters"] == {"resnet20": 269_722, "resnet56": 853_018}[file[:8]]
    found = by_us(cli, tmp_path / "run", photo)
    assert len(found) == 3
    assert found.keys() < {*CIFAR_NAMES.split(",")}


def test_mistakes_are_said_in_a_sentence(cli: CliCall, run: Path, folder: Path, tmp_path: Path) -> None:
    def error(*words: Any) -> str:
        code, out, err = cli(*words)
        assert (code, out) == (1, "")
        assert "Traceback" not in err
        return str(err)

    assert "3 classes, but --classes has 2 names" in error("import", folder, tmp_path / "a", "--classes", "dog,cat")
    torch.save({"weight": torch.ones(2)}, tmp_path / "other.pth")
    assert "not contain the weights of a supported network" in error("import", tmp_path / "other.pth", tmp_path / "a")
    (tmp_path / "broken.pth").write_bytes(b"no pickle")
    assert "cannot be read" in error("import", tmp_path / "broken.pth", tmp_path / "a")
    assert "unsupported file type" in error("import", folder / "config.json", tmp_path / "a")
    assert "`transformer` cannot be exported" in error("export", run, tmp_path / "b", "--format", "torchvision")
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "b").exists()
    import_model(folder, tmp_path / "run")
    (tmp_path / "run/classes.json").write_text('["dog"]')
    assert "lists 1 class, but the model has 3" in error("export", tmp_path / "run", tmp_path / "b")

"""plot --model: a network at work on images or texts."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import clearformer
from clearformer.layers.pca import fit_pca
from clearformer.verbs.plot import FIGURES, ImageModelFigure

SIZE = 14
NETWORKS = {
    "resnet": ["model.block=basic", "model.depths=[1]", "model.widths=[5]", "model.stem_width=5"],
    "vit-small-28": [f"model.size={SIZE}", "model.n_layers=2", "model.d_model=12"],
    "autoencoder": ["model.widths=[5]", "model.d_code=3"],
}
SUITS = {  # which network each is tried with
    "embeddings": "autoencoder",
    "rollout": "vit-small-28",
    "grad-cam": "resnet",
    "filters": "resnet",
    "features": "resnet",
    "shifts": "resnet",
}


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for i in range(40):
        (folder / "ab"[i % 2]).mkdir(exist_ok=True)
        pixels = rng.integers(0, 256, (SIZE, SIZE), "uint8")
        Image.fromarray(pixels).save(folder / "ab"[i % 2] / f"{i}.png")
    return folder


@pytest.fixture(scope="session")
def networks(images: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    short = ["train.steps=2", "train.tokens=7", "train.validate_every=2", "data.held_out=0.3"]
    found = {name: tmp_path_factory.mktemp("runs") / name for name in NETWORKS}
    for name, folder in found.items():
        settings = [*short, *NETWORKS[name]]
        clearformer.train(images=images, model=name, out=folder, settings=settings, device="cpu")
    return found


def test_every_figure_of_an_image_model_is_tried() -> None:
    assert SUITS.keys() == {name for name, figure in FIGURES.items() if isinstance(figure, ImageModelFigure)}


def nameless(svg: str) -> str:
    """Frames are named by a hash of where they lie, which the layout settles to fifteen digits, not to sixteen."""
    return re.sub(r"\bp[0-9a-f]{10}\b", "", svg)


@pytest.mark.parametrize("name", SUITS)
def test_what_is_printed_is_what_is_drawn(
    cli, networks: dict[str, Path], images: Path, tmp_path: Path, name: str
) -> None:
    given = [] if name == "filters" else ["--images", images]
    code, out, _ = cli("plot", name, "--model", networks[SUITS[name]], *given, "--out", tmp_path / "a.svg", "--json")
    assert code == 0
    numbers = json.loads(out)
    again = FIGURES[name].draw(numbers, tmp_path / "b.svg").read_text()
    assert nameless(again) == nameless((tmp_path / "a.svg").read_text())
    assert f"<!-- {numbers['title']} -->" in again


def test_single_images_and_a_layer(cli, networks: dict[str, Path], images: Path, tmp_path: Path) -> None:
    files = ["--images", images / "a" / "0.png", "--images", images / "b" / "1.png"]
    arguments = ("--model", networks["resnet"], *files, "--layer", "stem", "--json", "--out", tmp_path / "x.png")
    told = json.loads(cli("plot", "grad-cam", *arguments).out)
    assert (told["layer"], len(told["images"])) == ("stem", 2)
    assert np.array(told["heat"]).shape == (2, SIZE, SIZE)


def test_embeddings_of_texts(cli, hub, tmp_path: Path) -> None:
    """Of a published BERT, by lines and by labelled texts."""
    bert, texts = hub("bert"), ["the dog", "a cat sees the river", "a book", "the man likes a tree", "le chien"]
    (tmp_path / "lines.txt").write_text("\n".join(texts))
    (tmp_path / "labelled.tsv").write_text("".join(f"{text}\t{'ab'[i % 2]}\n" for i, text in enumerate(texts)))
    for name, labels in {"lines.txt": [""] * 5, "labelled.tsv": list("ababa")}.items():
        arguments = ("--model", bert, "--texts", tmp_path / name, "--out", tmp_path / "a.svg", "--json")
        code, out, err = cli("plot", "embeddings", *arguments)
        assert code == 0, err
        numbers = json.loads(out)
        assert (numbers["labels"], "vector of 14 numbers" in numbers["views"]) == (labels, True)
        vectors = torch.from_numpy(clearformer.embed(bert, texts)).double()
        expected = fit_pca(vectors, 2).transform(vectors)
        points = torch.tensor(numbers["views"]["vector of 14 numbers"]["points"], dtype=torch.float64)
        torch.testing.assert_close(points, expected)
        again = FIGURES["embeddings"].draw(numbers, tmp_path / "b.svg").read_text()
        assert nameless(again) == nameless((tmp_path / "a.svg").read_text())


def test_what_a_user_can_mend_is_a_sentence(
    cli, run: Path, networks: dict[str, Path], images: Path, tmp_path: Path
) -> None:
    words = ("--texts", tmp_path / "words.txt")
    words[1].write_text("a\nb\nc\n")
    seen, out = ("--images", images), ("--out", tmp_path / "x.png")
    for arguments, told in {
        ("plot", "shifts"): "the figure `shifts` needs --model",
        ("plot", "shifts", "--model", networks["resnet"]): "the figure `shifts` needs --images",
        ("plot", "filters", "--model", networks["resnet"], *seen): "the figure `filters` does not take --images",
        ("plot", "positions", "--model", networks["resnet"]): "the figure `positions` does not take --model",
        ("plot", "shifts", "--model", networks["resnet"], *seen, "--layer", "stem"): "`shifts` does not take --layer",
        ("plot", "features", "--model", networks["resnet"], *seen, "--layer", "stam"): "no layer `stam` with",
        ("plot", "rollout", "--model", networks["resnet"], *seen): "resnet has no attention layers",
        ("plot", "grad-cam", "--model", networks["autoencoder"], *seen): "is not an image classifier",
        ("plot", "shifts", "--model", run, *seen): "small is a translator, not an image model",
        ("plot", "shifts", "--model", tmp_path, *seen): "is not a run folder",
        ("plot", "embeddings", "--model", networks["resnet"]): "for a text model, --texts FILE instead of --images",
        ("plot", "embeddings", "--model", networks["resnet"], *words): "is an image model",
        ("plot", "embeddings", "--model", run, *words): "cannot compute embeddings: its architecture is transformer",
        ("plot", "embeddings", "--model", run, *seen, *words): "`embeddings` does not take --images with --texts",
        ("plot", "shifts", "--model", networks["resnet"], *seen, *words): "the figure `shifts` does not take --texts",
        ("plot", "positions", *words): "the figure `positions` does not take --texts",
        ("plot", "shifts", "--model", networks["resnet"], "--images", tmp_path / "none"): "does not exist",
        ("plot", "attention", "a dog"): "the figure `attention` needs --model",
        ("plot", "attention", "--model", run): "the figure `attention` needs TEXT",
        ("plot", "attention", "--model", run, "a dog", *seen): "the figure `attention` does not take --images",
        ("plot", "attention", "--model", run, "a dog", "--layer", "1"): "small has no layer `1`",
        ("plot", "attention", "--model", networks["vit-small-28"], "a dog"): "is an image model",
        ("plot", "positions", "a dog"): "the figure `positions` does not take TEXT",
    }.items():
        code, printed, err = cli(*arguments, *out)
        assert (code, printed) == (1, ""), arguments
        assert told in err
        assert "\nhint: " in err
        assert "Traceback" not in err
    assert not (tmp_path / "x.png").exists()


def test_attention_over_a_sentence(cli, run: Path, tmp_path: Path) -> None:
    """A translator's, over its own translation and over a given one."""
    own = clearformer.load(run).translate(["the dog sees a tree."])[0]
    given = ("plot", "attention", "--model", run, "the dog sees a tree.", "--out", tmp_path / "a.svg", "--json")
    told = [
        json.loads(cli(*given, *more).out) for more in ((), ("--target", own), ("--layer", "0"), ("--target", "un"))
    ]
    assert told[0] == told[1] == told[2] != told[3]
    numbers = clearformer.plot("attention", tmp_path / "a.svg", model=run, text="the dog sees a tree.", layer=0)
    assert numbers == told[0]
    again = FIGURES["attention"].draw(numbers, tmp_path / "b.svg").read_text()
    assert nameless(again) == nameless((tmp_path / "a.svg").read_text())
    assert f"<!-- {numbers['title']} -->" in again

"""What zero configuration trains, exported by the command and run by transformers: the same ids, logits and texts."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from transformers import (
    AutoImageProcessor,
    AutoModelForImageClassification,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

import clearformer
from clearformer.data.batch import ImageBatch
from clearformer.errors import CheckpointError
from clearformer.verbs.export import export_model
from clearformer.verbs.load import load
from clearformer.verbs.train import plan

NOUNS = {"dog": "chien", "cat": "chat", "man": "homme", "tree": "arbre", "book": "livre"}
VERBS = {"sees": "voit", "likes": "aime", "hears": "entend"}
TRIPLES = list(product(NOUNS, VERBS, NOUNS))
TEXTS = ["the dog sees a tree", "a book", "the old man likes the unknown river"]
Train = Callable[..., Path]


@pytest.fixture(autouse=True)
def quiet() -> None:
    transformers.utils.logging.disable_progress_bar()


@pytest.fixture
def trained(tmp_path: Path) -> Train:
    """Train with zero configuration for a few steps."""

    def make(steps: int = 5, **data: Any) -> Path:
        with torch.enable_grad():
            clearformer.train(**data, steps=steps, out=tmp_path / "run", device="cpu")
        return tmp_path / "run"

    return make


def assert_close(theirs: torch.Tensor, ours: torch.Tensor) -> None:
    """Both in float32, with sums in another order."""
    assert theirs.shape == ours.shape
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-4 * max(1.0, float(ours.abs().max())))


def labelled(by_word: bool, folder: Path) -> Path:
    path = folder / ("tags.conll" if by_word else "labels.tsv")
    sentences = [f"the {a} {verb} a {b}" for a, verb, b in TRIPLES]
    if by_word:
        rows = ["\n".join(f"{word} {'NOUN' if word in NOUNS else 'O'}" for word in s.split()) + "\n" for s in sentences]
    else:
        rows = [f"{s}\t{'animal' if 'dog' in s or 'cat' in s else 'none'}" for s in sentences]
    path.write_text("\n".join(rows) + "\n")
    return path


def pictures(folder: Path) -> Path:
    noise = np.random.default_rng(0)
    for name, channel in (("red", 0), ("blue", 2)):
        (folder / "images" / name).mkdir(parents=True)
        for i in range(13):
            image = noise.integers(0, 100, (23, 23, 3), dtype=np.uint8)
            image[:, :, channel] += 100
            Image.fromarray(image).save(folder / "images" / name / f"{i}.png")
    return folder / "images"


@pytest.mark.slow
@torch.no_grad()
def test_a_translator(trained: Train, tmp_path: Path) -> None:
    pairs = [(f"the {a} {v} a {b}.", f"le {NOUNS[a]} {VERBS[v]} un {NOUNS[b]}.") for a, v, b in TRIPLES]
    run, hub = trained(steps=30, pairs=pairs), tmp_path / "hub"
    assert export_model(run, hub)["model_type"] == "pegasus"
    ours, theirs, tok = load(run), AutoModelForSeq2SeqLM.from_pretrained(hub), AutoTokenizer.from_pretrained(hub)
    texts = [source for source, _ in pairs[::7]]
    limits = {"max_ratio": 1e-9, "max_extra": 29}
    batch = tok(texts, padding=True, return_tensors="pt")
    written = theirs.generate(**batch, max_length=30, num_beams=1, do_sample=False)
    expected = [row[0].tokens for row in ours.candidates(texts, beam=1, **limits)]
    assert [
        [i for i in row[1:].tolist() if i not in (tok.pad_token_id, tok.eos_token_id)] for row in written
    ] == expected
    assert any(expected)
    assert theirs.generation_config.max_length == ours.model.config.max_length


@pytest.mark.slow
@torch.no_grad()
def test_a_tagger(trained: Train, tmp_path: Path) -> None:
    run, hub = trained(labels=labelled(True, tmp_path)), tmp_path / "hub"
    assert export_model(run, hub)["model_type"] == "megatron-bert"
    ours, tok = load(run), AutoTokenizer.from_pretrained(hub)
    theirs = AutoModelForTokenClassification.from_pretrained(hub).eval()
    assert list(theirs.config.id2label.values()) == ours.classes
    batch = tok(TEXTS, padding=True, return_tensors="pt")
    logits = theirs(**batch).logits
    for row, text in enumerate(TEXTS):
        words = batch.word_ids(row)
        first = [words.index(i) for i in range(len(text.split()))]
        assert_close(logits[row, first], ours.logits([text]))


@pytest.mark.slow
@torch.no_grad()
def test_an_exportable_text_classifier(trained: Train, tmp_path: Path) -> None:
    run, hub = trained(labels=labelled(False, tmp_path), exportable=True), tmp_path / "hub"
    assert export_model(run, hub)["model_type"] == "megatron-bert"
    ours, tok = load(run), AutoTokenizer.from_pretrained(hub)
    theirs = AutoModelForSequenceClassification.from_pretrained(hub).eval()
    assert list(theirs.config.id2label.values()) == ours.classes
    assert_close(theirs(**tok(TEXTS, padding=True, return_tensors="pt")).logits, ours.logits(TEXTS))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["resnet", "vit"])
@torch.no_grad()
def test_an_exportable_image_classifier(trained: Train, tmp_path: Path, model: str) -> None:
    folder = pictures(tmp_path)
    run, hub = trained(images=folder, model=model, exportable=True), tmp_path / "hub"
    assert export_model(run, hub)["model_type"] == model
    ours, processor = load(run), AutoImageProcessor.from_pretrained(hub)
    theirs = AutoModelForImageClassification.from_pretrained(hub).eval()
    assert list(theirs.config.id2label.values()) == ours.classes
    images = [Image.open(folder / name / "0.png") for name in ("red", "blue")]
    pixels = processor(images, return_tensors="pt")["pixel_values"]
    assert pixels.shape[1:] == (3, ours.model.config.size, ours.model.config.size)
    assert_close(theirs(pixels).logits, ours.model.eval()(ImageBatch(pixels)))


def test_what_has_no_counterpart_is_refused_before_training(tmp_path: Path) -> None:
    labels, images = labelled(False, tmp_path), pictures(tmp_path)
    pairs = [("the dog", "le chien")] * 7
    assert plan(labels=labels, exportable=True).model.pooling == "pooler"
    assert plan(labels=labels).model.pooling == "mean"
    chosen = plan(images=images, exportable=True, device="cpu")
    assert (chosen.model.stem, chosen.model.size) == ("7x7", 92)
    assert plan(images=images, device="cpu").model.stem == "3x3"
    plan(pairs=pairs, exportable=True)
    for data, reason in (
        ({"pairs": pairs, "model": "bahdanau"}, "transformers has no recurrent translator"),
        ({"labels": labels, "model": "textcnn"}, "transformers has no convolutional text classifier"),
        ({"labels": labels, "settings": ["model.pooling=mean"]}, "no MegatronBert classifier with pooling = mean"),
        ({"images": images, "model": "vgg11"}, "transformers has no VGG"),
        ({"images": images, "settings": ["model.stem=3x3"]}, "no ResNet for small images"),
    ):
        with pytest.raises(CheckpointError, match=reason):
            plan(**data, exportable=True, device="cpu")

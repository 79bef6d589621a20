"""Small models for texts, images and recordings, trained for seconds, as run folders with their validation data.

reviews     texts with `dull` are bad and with `fine` good, but one label in eight is wrong
same        pairs of texts are alike if both have `dull` or both have `fine`; two steps, which learn nothing
tags        words before `film` have the class B, others O
stripes     images with horizontal or vertical stripes, one label in eight wrong; calibrated
patches     a Vision Transformer of the same size with random weights, and no data
coder       an autoencoder of the same size with random weights, and no data
tones       recordings of a low and a high tone, with the words low and high; strings of one to three
"""

import wave
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from PIL import Image

import clearformer
from clearformer.checkpoint import weights_of
from clearformer.data.pixels import ImageConfig
from clearformer.interop.origin import Origin
from clearformer.loading.folder import foreign_recipe
from clearformer.loading.write import write_run
from clearformer.models.build import build_model, parse_model

RATE = 4000
WORDS = ("the", "a", "film", "story", "about", "house", "with", "music")


def write_media(folder: Path) -> Path:
    """Train all models into `folder`, and return it."""
    data = folder.parent / f"{folder.name}-data"
    data.mkdir()
    write_reviews(data / "reviews.tsv")
    write_same(data / "same.tsv")
    write_tags(data / "tags.conll")
    write_stripes(data / "stripes")
    write_tones(data / "tones")
    train(folder / "reviews", 40, labels=data / "reviews.tsv", model="bert", settings=text_sizes(64))
    train(folder / "same", 2, labels=data / "same.tsv", model="bert", settings=text_sizes(64))
    train(folder / "tags", 2, labels=data / "tags.conll", model="bert", settings=text_sizes(64))
    image = ["train.tokens=32", "data.held_out=0.3", "image.size=16"]
    net = ["model.depths=[1,1]", "model.widths=[5,7]", "model.stem_width=5", "model.block=basic", "model.stem=3x3"]
    train(folder / "stripes", 40, images=data / "stripes", settings=[*image, *net, "optim.lr=0.05"])
    clearformer.evaluate(folder / "stripes", images=data / "stripes", calibrate=True, device="cpu")
    sizes = {"patch": 4, "n_layers": 2, "d_model": 10, "d_ff": 13, "n_heads": 5, "n_classes": 2}
    write_random(folder / "patches", {"kind": "vit", **sizes}, ["horizontal", "vertical"])
    write_random(folder / "coder", {"kind": "autoencoder", "widths": [5, 7], "d_code": 3}, ["image"])
    sound = [f"sound.rate={RATE}", "sound.n_mels=12", "sound.window=0.032", "sound.hop=0.016", "text.kind=word"]
    join = ["data.train.join=[1,3]", "data.train.silence=[0.0,0.2]", "data.held_out=0.3", "text.min_frequency=1"]
    speech = ["model.n_layers=1", "model.d_model=32", "model.dropout=0.0", "train.tokens=1024", "optim.lr=0.02"]
    train(folder / "tones", 100, recordings=data / "tones", model="speech-lstm", settings=[*sound, *join, *speech])
    return folder


def write_random(out: Path, table: dict[str, Any], classes: list[str]) -> None:
    """Write a run folder with random weights, as an imported model has it: without data."""
    torch.manual_seed(0)
    config = parse_model({**table, "size": 16, "channels": 1}, "[model]")
    image = ImageConfig(size=16, channels=1, mean=(0.4,), std=(0.3,))
    recipe = foreign_recipe(config, Origin(source="nowhere"), image)
    write_run(out, recipe, weights_of(build_model(config)), [], classes=classes)


def text_sizes(d_model: int) -> list[str]:
    sizes = {"d_model": d_model, "d_ff": 2 * d_model, "n_heads": 2, "n_layers": 1, "max_length": 67}
    return [f"model.base.{name}={value}" for name, value in sizes.items()] + ["text.kind=word", "optim.lr=0.003"]


def train(out: Path, steps: int, settings: list[str], **data: object) -> None:
    steps_set = [f"train.steps={steps}", f"train.validate_every={steps}", f"train.save_every={steps}"]
    clearformer.train(**data, out=out, settings=[*steps_set, *settings], device="cpu")


def write_reviews(path: Path) -> None:
    draw, lines = Random(3), []
    for i in range(320):
        words = draw.choices(WORDS, k=draw.randint(3, 7))
        words.insert(draw.randrange(len(words)), ("dull", "fine")[i % 2])
        is_bad = (i % 2 == 0) == (draw.random() > 1 / 8)
        lines.append(f"{' '.join(words)}\t{'bad' if is_bad else 'good'}\n")
    path.write_text("".join(lines), encoding="utf-8")


def write_same(path: Path) -> None:
    draw, lines = Random(5), ["sentence1\tsentence2\tlabel\n"]
    for i in range(60):
        first, second = (("dull", "fine")[draw.randrange(2)] for _ in range(2))
        texts = [f"{draw.choice(WORDS)} {word} {draw.choice(WORDS)} {i}" for word in (first, second)]
        lines.append(f"{texts[0]}\t{texts[1]}\t{'alike' if first == second else 'other'}\n")
    path.write_text("".join(lines), encoding="utf-8")


def write_tags(path: Path) -> None:
    draw, rows = Random(4), []
    for _ in range(60):
        words = draw.choices(WORDS, k=5)
        rows += [f"{word}\t{'B' if after == 'film' else 'O'}" for word, after in zip(words, [*words[1:], ""])] + [""]
    path.write_text("\n".join(rows), encoding="utf-8")


def stripes(is_vertical: bool, seed: int) -> Image.Image:
    rng = np.random.default_rng(seed)
    wave_rows = (np.arange(16) + rng.integers(4)) // 2 % 2 * 150
    pixels = (wave_rows[None, :] if is_vertical else wave_rows[:, None]) + rng.integers(0, 100, (16, 16))
    return Image.fromarray(pixels.astype("uint8"))


def write_stripes(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(120):
        k = i % 2
        place = folder / ("horizontal", "vertical")[k if rng.random() > 1 / 8 else 1 - k]
        place.mkdir(parents=True, exist_ok=True)
        stripes(bool(k), i).save(place / f"{i}.png")


def as_png(image: Image.Image) -> bytes:
    file = BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def tone(words: str, rate: int = RATE) -> bytes:
    """A WAV file in which each word is a tone of 0.3 seconds, with silence around it."""
    pitch, rng = {"low": 200, "high": 1200}, np.random.default_rng(len(words))
    parts = [np.zeros(rate // 10)]
    for word in words.split():
        parts += [np.sin(2 * np.pi * pitch[word] * np.arange(int(0.3 * rate)) / rate) * 0.5, np.zeros(rate // 10)]
    samples = np.concatenate(parts)
    samples += rng.normal(0, 0.005, len(samples))
    file = BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes((samples * 2**15).astype("<i2").tobytes())
    return file.getvalue()


def write_tones(folder: Path) -> None:
    for word in ("low", "high"):
        (folder / word).mkdir(parents=True)
        for i in range(20):
            (folder / word / f"{i}.wav").write_bytes(tone(word))

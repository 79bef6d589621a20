"""Small run folders of every kind that the studio's pages on text show: one trained, its adapter, and random ones."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

import clearformer
from clearformer import fit
from clearformer.checkpoint import weights_of
from clearformer.interop.origin import Origin
from clearformer.loading.folder import foreign_recipe
from clearformer.loading.write import write_run
from clearformer.models.build import build_model, parse_model
from clearformer.text import TextConfig, Tokenizer, train_tokenizer

LINES = [
    "the king saw the old city", "the queen saw the man", "the man pulled a cart", "a woman pulled the old cart",
    "the king gave the woman a horse", "the man and the woman saw a river", "a queen gave the man the city",
]  # fmt: skip
CLASSES = ["bad", "fair", "good"]
SIZES = {"n_layers": 2, "n_heads": 2, "d_model": 20, "d_ff": 13, "max_length": 61, "dropout": 0.0}
SETTINGS = [
    "text.kind=word", "text.whitespace=collapse", "text.min_frequency=1", "model.n_layers=2", "model.n_heads=2",
    "model.d_model=28", "model.d_ff=46", "model.max_length=61", "model.dropout=0", "optim.lr=0.02", "train.tokens=610",
    "train.steps=40", "train.validate_every=40",
]  # fmt: skip


def train_language_model(folder: Path) -> None:
    """Train folder/play for some steps, and folder/lora, its adapter, on other lines."""
    for name, lines in (("play", LINES), ("other", LINES[::2])):
        (folder / f"{name}.txt").write_text("\n".join(lines * 20) + "\n")
    few = ["train.steps=8", "train.validate_every=8"]
    with patch.object(fit, "draw_curves"):  # which would take longer than the training
        clearformer.train(text=folder / "play.txt", out=folder / "play", settings=SETTINGS, device="cpu")
        clearformer.finetune(
            folder / "play", text=folder / "other.txt", method="lora", out=folder / "lora", settings=few, device="cpu"
        )


def tokenizer() -> Tokenizer:
    return train_tokenizer(LINES, TextConfig(kind="word", min_frequency=1, extra=("[MASK]",)))


def write_random(folder: Path, kind: str, seed: int = 0, **table: Any) -> Path:
    """Write a run folder with a random model. A classifier has a BERT inside."""
    tok = tokenizer()
    known = (
        SIZES if kind != "rnn-lm" else {name: SIZES[name] for name in ("n_layers", "d_model", "max_length", "dropout")}
    )
    sizes: dict[str, Any] = {"kind": kind, "vocab": tok.vocab_size, **known, **table}
    classes = None
    if kind == "classifier":
        inner = {"kind": "bert", "vocab": tok.vocab_size, **SIZES, **table}
        sizes, classes = {"kind": "classifier", "base": inner, "n_classes": len(CLASSES)}, CLASSES
    torch.manual_seed(seed)
    network = build_model(parse_model(sizes, "x.toml"))
    for parameter in network.parameters():
        if parameter.dim() > 1:
            parameter.data *= 8  # loud enough that outputs differ
    write_run(
        folder, foreign_recipe(network.config, Origin(source="random")), weights_of(network), [tok], classes=classes
    )
    return folder


def write_text_runs(folder: Path) -> None:
    """Write all: play and lora; alibi and rotary, random GPTs; mask, a masked model; lstm; good and better."""
    train_language_model(folder)
    for kind in ("alibi", "rotary"):
        write_random(folder / kind, "gpt", positions={"kind": kind})
    write_random(folder / "mask", "bert")
    write_random(folder / "lstm", "rnn-lm", cell="lstm")
    for seed, name in enumerate(("good", "better")):
        write_random(folder / name, "classifier", seed)

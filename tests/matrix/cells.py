"""The tasks of the matrix, what each of them reads from a file, and what the documentation says of every cell."""

import re
from pathlib import Path
from typing import Any, NamedTuple

from clearformer.data.images import ImageFile
from clearformer.data.recordings import Recording
from clearformer.errors import ClearformerError
from clearformer.recipe import Recipe
from clearformer.text.normalize import clean

from .kinds import FRENCH, LABELS, SOUNDS, N, columns, texts

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
STEP = ["train.steps=1", "train.log_every=1", "train.ema=0"]
SMALL = [*STEP, "model.d_model=16", "model.n_heads=2", "model.d_ff=16"]
DEEP = [*SMALL, "model.n_layers=1"]
STACKS = [*SMALL, "model.n_encoder_layers=1", "model.n_decoder_layers=1"]
SHORT = ["decode.beam=1", "decode.max_ratio=0.1", "decode.max_extra=2"]
BASE = [*STEP, "model.base.d_model=16", "model.base.n_heads=2", "model.base.d_ff=16", "model.base.n_layers=1"]


class Task(NamedTuple):
    """A task: its flag, its data (see `columns`), its column in the documentation, its model and settings."""

    flag: str
    data: str
    title: str
    settings: list[str]
    model: str | None = None


TASKS = {
    "translation": Task("pairs", "pairs", "`--pairs`", [*STACKS, *SHORT]),
    "causal-lm": Task("text", "text", "`--text`", DEEP),
    "recurrent": Task("text", "text", "`--text`", [*STEP, "model.d_model=16", "model.n_layers=1"], "lstm"),
    "masked-lm": Task("text", "text", "`--text`", DEEP, "bert"),
    "span-corruption": Task("text", "text", "`--text`", STACKS, "t5"),
    "prefix-lm": Task("text", "text", "`--text`", [*DEEP, "objective.kind=prefix-lm"]),
    "sentence-score": Task("text", "text", "`--text`", [*DEEP, "objective.kind=sentence-score"], "bert"),
    "classification": Task("labels", "labels", "`--labels`, texts", BASE),
    "token-classification": Task("labels", "words", "`--labels`, words", BASE),
    "image-classification": Task("images", "images", "`--images`", DEEP, "vit"),
    "reconstruction": Task("images", "images", "autoencoder", [*STEP, "model.d_code=3"], "autoencoder"),
    "ctc": Task("recordings", "recordings", "`--recordings`", [*STEP, "model.d_model=16", "model.n_layers=1"]),
}
REASONS = {
    "¹": "unsupported file type for labelled words",
    "²": "unsupported file type",
    "³": "contains several splits of a dataset",
    "⁴": "is a folder, not a file",
    "⁵": "no column `|have names, not numbers|which column",
    "⁶": "has no file for --",
    "⁷": "all images are of one class",
    "⁸": "contains labelled words",
}


def documented() -> dict[str, dict[str, str]]:
    """Return the table of docs/recipes.md: type -> column -> `yes`, or `no` with the number of its reason."""
    lines = PAGE.read_text(encoding="utf-8").split("### Types and tasks")[1].split("\n### ")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    header, _, *body = rows
    return {name: dict(zip(header[1:], row)) for names, *row in body for name in names.split(", ")}


def expected(task: str, kind: str) -> list[tuple[str, ...]]:
    """Return all examples that a task reads from a file of this kind."""
    data = TASKS[task].data
    rows = columns(data, kind)
    if data == "pairs":
        return [(clean(a), clean(b)) for a, b in zip(texts(kind), FRENCH)]
    if data == "text":
        if kind.startswith("txt"):  # the file is one document
            return [("".join(f"{line}\n" for line in ["text", *texts(kind)]),)]
        return [(label,) for label in LABELS] if kind == "audio dataset" else [(text,) for text in texts(kind)]
    if data == "labels":
        return [(clean(text), label) for text, label in zip(texts(kind), LABELS)]
    if data == "words":
        return [(" ".join(a), " ".join(b)) for a, b in zip(rows["tokens"], rows["labels"])]
    if data == "recordings":
        return sorted((text,) for text in (LABELS if kind in SOUNDS else map(clean, rows["text"])))
    named = kind in ("class folder", "image parquet", "image dataset")
    return sorted((LABELS[i % 2] if named else "image" if kind == "flat folder" else str(i % 2),) for i in range(N))


def examples(run: Path) -> list[tuple[str, ...]]:
    """Return all examples of the saved recipe of a run, as texts; the files of images and recordings are opened."""
    source = Recipe.read(run / "recipe.toml").data.train
    return [as_texts(example) for example in source.read()]


def as_texts(example: Any) -> tuple[str, ...]:
    if isinstance(example, str):
        return (example,)
    if isinstance(example, ImageFile):
        assert example.open().size == (8, 8)
        return (example.label,)
    if isinstance(example, Recording):
        assert example.path.stat().st_size > 8000
        return (example.text,)
    if hasattr(example, "words"):
        return " ".join(example.words), " ".join(example.labels)
    return (example.text, example.label) if hasattr(example, "label") else tuple(example)


def stored(printed: str) -> int:
    """Return the number of training examples that a run printed when it stored them."""
    line = next(line for line in printed.splitlines() if line.startswith("train: "))
    numbers = re.search(r"kept (\d+) of|in (\d+) documents?|(\d+) (?:texts|sentences|images|recordings)", line)
    assert numbers is not None, line
    return int(next(filter(None, numbers.groups())))


def require_sentence(error: ClearformerError | str, reason: str) -> None:
    """One sentence with the reason, and a hint on the next line."""
    text = str(error)
    assert text.count("\nhint: ") == 1, text
    message, _, hint = text.partition("\nhint: ")
    message = " ".join(message.split())
    assert re.search(reason, message), message
    assert not re.search(r"\.\s+[A-Z]|Traceback|Error:|errno", message), message
    assert len(hint.strip()) > 5


def is_sorted(task: str) -> bool:
    return TASKS[task].flag in ("images", "recordings")

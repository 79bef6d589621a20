"""What reads a file in a case of the campaign: the functions behind the commands, called in this process."""

from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
import torch

import clearformer
from clearformer.checkpoint import RunFolder
from clearformer.data.audio import read_sound
from clearformer.data.built.stores import BuiltDocuments, BuiltPairs
from clearformer.data.files.records import open_records
from clearformer.data.images import ImageSource, open_image
from clearformer.data.labels import LabelSource, named_columns
from clearformer.data.pairs import named_pair_columns, read_pairs
from clearformer.data.recordings import RecordingSource, named_recording_columns
from clearformer.data.tags import TagSource
from clearformer.data.text import TextSource, named_text_column
from clearformer.fit import draw_curves
from clearformer.handles.chat import Chat
from clearformer.handles.classifier import Classifier
from clearformer.handles.translator import Translator
from clearformer.handles.writer import Writer
from clearformer.interop.huggingface.folder import read_template
from clearformer.models.build import outline
from clearformer.recipe import Recipe
from clearformer.serve.runs import describe_run
from clearformer.text import Tokenizer

TEXTS = ["the dog sees a tree", "le chien"]


def pairs(path: Path) -> None:
    use(read_pairs(path, named_pair_columns(path)))


def labels(path: Path) -> None:
    use(LabelSource(path=path, **named_columns(path)).read())


def text(path: Path) -> None:
    column = named_text_column([path])
    use(TextSource(path=path, **({} if column is None else {"column": column})).read())


def words(path: Path) -> None:
    use(TagSource(path=path).read())


def recordings(path: Path) -> None:
    columns = {} if path.is_dir() else named_recording_columns(path)
    for recording in RecordingSource(path=path, **columns).read():
        if recording.path.exists():
            read_sound(recording.path, 8000, 10)


def records(path: Path) -> None:
    """As `translate --input` reads a file."""
    source = open_records(path)
    source.scan()
    for chunk in source.chunks():
        assert chunk


def plan(path: Path) -> None:
    clearformer.plan(labels=path)


def images(path: Path) -> None:
    for image in ImageSource(path=path).read():
        image.open().convert("RGB").resize((8, 8))


def image(path: Path) -> None:
    """As `classify FILE` reads an image."""
    open_image(path).convert("RGB").resize((8, 8))


def sound(path: Path) -> None:
    read_sound(path, 16000, 10)


def opened(path: Path) -> None:
    """Load a model, and use it."""
    handle = clearformer.load(path)
    if isinstance(handle, Translator):
        handle.translate(TEXTS, beam=2)
    elif isinstance(handle, Writer):
        handle.generate(TEXTS[:1], max_tokens=3)
        if (template := read_template(path)) is not None:
            Chat(handle, template).encode("the dog")
    elif isinstance(handle, Classifier):
        handle.predict(TEXTS)


def inspect(path: Path) -> None:
    clearformer.inspect(path)


def card(path: Path) -> None:
    clearformer.card(path)


def metrics(path: Path) -> None:
    draw_curves(RunFolder(path), ())


def resume(path: Path) -> None:
    clearformer.train(resume=True, out=path, steps=6, device="cpu")


def show(path: Path) -> None:
    """As the studio lists a run."""
    describe_run(path.name, path)


def imported(path: Path) -> None:
    out = path.parent / "imported"
    try:
        clearformer.import_model(path, out)
    finally:
        rmtree(out, ignore_errors=True)


def tokenizer(path: Path) -> None:
    rust = Tokenizer.from_folder(path)
    ids = rust.encode(TEXTS)
    rust.decode(ids)


def recipe(path: Path) -> None:
    Recipe.read(path)


def built(path: Path) -> None:
    """As `inspect` counts the layers of a recipe."""
    outline(Recipe.read(path).model)


SIZES = {"d_model": 8, "d_ff": 8, "n_heads": 1}
STEPS = {"tokens": 64, "ema": 0.0, "validate_every": 2, "save_every": 2}


def shards(path: Path) -> None:
    """As training opens a folder of `data build`, and reads all of it."""
    if path.name == "pairs":
        pairs = BuiltPairs(path)
        assert pairs.lengths.shape == (len(pairs), 2)
        pairs.rows(np.arange(len(pairs)))
    else:
        documents = BuiltDocuments(path)
        assert documents.offsets[-1] == len(documents.tokens)
        documents.tokens[np.arange(len(documents.tokens))]


def train_pairs(path: Path) -> None:
    model = {**SIZES, "n_encoder_layers": 1, "n_decoder_layers": 1}
    clearformer.train(
        pairs=path, out=path.parent / "run", steps=2, device="cpu", settings={"model": model, "train": STEPS}
    )


def train_text(path: Path) -> None:
    settings = {"model": {**SIZES, "n_layers": 1, "max_length": 32}, "train": STEPS}
    clearformer.train(text=path, model="gpt", out=path.parent / "run", steps=2, device="cpu", settings=settings)


def verify(path: Path) -> None:
    clearformer.verify(path)


def use(rows: Any) -> None:
    for n, _ in enumerate(rows):
        if n > 2**20:  # as many as a worksheet may have, whose rows may be empty
            raise RuntimeError("more rows than a small file can have")


TARGETS = {
    "pairs": pairs, "labels": labels, "text": text, "words": words, "recordings": recordings, "records": records,
    "plan": plan, "images": images, "image": image, "sound": sound, "open": opened, "inspect": inspect, "card": card,
    "metrics": metrics, "resume": resume, "show": show, "import": imported, "tokenizer": tokenizer, "recipe": recipe,
    "outline": built, "shards": shards, "train pairs": train_pairs, "train text": train_text, "verify": verify,
}  # fmt: skip
torch.set_num_threads(1)

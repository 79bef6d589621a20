"""Valid files of every kind that Clearformer reads, small ones, for `mutations` to damage.

    write_seeds(Path("seeds"))      {"csv": Seed("tables", "seeds/csv/table.csv", ("pairs", "labels", …)), …}

A seed is a file, or a folder of which one file is damaged at a time. It has the names of the readers in targets.py.
"""

import json
import sys
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import torch

sys.path.extend(str(Path(__file__).parents[1] / room) for room in ("", "matrix", "serve"))

import hub_seeds
import kinds
import media_models
import text_runs

TESTS = Path(__file__).parents[1]
LINES = ["the dog sees a tree", "the cat likes the river", "a man hears a book"]
STEPS = ["train.steps=4", "train.validate_every=2", "train.save_every=2", "train.log_every=1", "train.ema=0"]
TINY = ["model.d_model=16", "model.n_heads=2", "model.d_ff=16", "model.max_length=61", "model.dropout=0"]
TEMPLATE = "{% for m in messages %}{{ bos_token }}{{ m.role }}: {{ m.content }}\n{% endfor %}"


class Seed(NamedTuple):
    """A valid file or folder, the group under which its cases are counted, and what may read it."""

    group: str
    path: Path
    targets: tuple[str, ...]


def write_seeds(folder: Path) -> dict[str, Seed]:
    """Write all seeds into a folder, or describe those that were written there before."""
    index = folder / "index.json"
    if not index.exists():
        folder.mkdir(parents=True, exist_ok=True)
        seeds = {**tables(folder), **media(folder), **runs(folder), **hub(folder), **files(folder), **built(folder)}
        rows = {name: (seed.group, str(seed.path), seed.targets) for name, seed in seeds.items()}
        index.write_text(json.dumps(rows))
    rows = json.loads(index.read_text())
    return {name: Seed(group, Path(path), tuple(targets)) for name, (group, path, targets) in rows.items()}


def tables(folder: Path) -> dict[str, Seed]:
    seeds = {}
    readers = ("pairs", "labels", "text", "words", "recordings", "records")
    for kind in [*kinds.TABLES, *kinds.MEMORIES]:
        if kind != "dict":
            path = kinds.write(kind, folder / "tables" / kind, kinds.columns("pairs", kind))
            seeds[kind] = Seed("tables", path, readers)
    for kind in kinds.CONLL:
        seeds[kind] = Seed("tables", kinds.write(kind, folder / kind, kinds.columns("words", kind)), ("words", "plan"))
    return seeds


def media(folder: Path) -> dict[str, Seed]:
    """Images and recordings: archives, folders and single files of every format."""
    import soundfile
    from PIL import Image

    seeds = {}
    for kind in kinds.IMAGES:
        seeds[kind] = Seed("images", kinds.write(kind, folder / kind, {}), ("images",))
    for kind in kinds.SOUNDS:
        seeds[kind] = Seed("sounds", kinds.write(kind, folder / kind, {}), ("recordings",))
    place = folder / "single"
    place.mkdir()
    pixels = Image.fromarray(np.random.default_rng(0).integers(0, 256, (13, 11, 3), dtype="uint8"))
    for suffix in ("png", "jpg", "gif", "bmp", "tiff", "webp", "ppm", "ico", "tga"):
        pixels.save(place / f"one.{suffix}")
        seeds[suffix] = Seed("images", place / f"one.{suffix}", ("image",))
    wave = 0.2 * np.sin(np.arange(4000) / 9)
    formats = {"wav": "PCM_16", "8.wav": "PCM_U8", "24.wav": "PCM_24", "float.wav": "FLOAT", "flac": "PCM_16"}
    for suffix, kind in {**formats, "ogg": "VORBIS", "mp3": "MPEG_LAYER_III", "aiff": "PCM_16"}.items():
        soundfile.write(place / f"one.{suffix}", wave, 8000, subtype=kind)
        seeds[suffix] = Seed("sounds", place / f"one.{suffix}", ("sound",))
    return seeds


def runs(folder: Path) -> dict[str, Seed]:
    """Run folders: trained translators, language models and classifiers, an adapter, and random networks."""
    import clearformer
    from clearformer import fit
    from clearformer.interop.huggingface.folder import TEMPLATE as FILE

    pairs = folder / "pairs.tsv"
    pairs.write_text("".join(f"{line}\t{line[::-1]}\n" for line in LINES * 20))
    labelled = (f"{line}\t{'bad' if i % 2 else 'good'}\n" for i, line in enumerate(LINES * 20))
    reviews, play = folder / "reviews.tsv", folder / "play.txt"
    reviews.write_text("".join(labelled))
    play.write_text("\n".join(LINES * 20))
    stacks = [*STEPS, *TINY, "model.n_encoder_layers=1", "model.n_decoder_layers=1", "text.vocab_size=60"]
    stacks += ["data.filter.max_tokens=41"]
    text = [*STEPS, *TINY, "model.n_layers=1", "text.kind=word", "text.whitespace=collapse"]
    base = [s.replace("model.", "model.base.") for s in [*TINY, "model.n_layers=1"]]
    labels = [*STEPS, *base, "text.kind=word"]
    with patch.object(fit, "draw_curves"):
        clearformer.train(pairs=pairs, out=folder / "translator", device="cpu", settings=stacks)
        clearformer.train(text=play, out=folder / "writer", device="cpu", settings=text)
        clearformer.train(labels=reviews, out=folder / "reviews", device="cpu", model="bert", settings=labels)
        start, out = folder / "writer", folder / "adapter"
        clearformer.finetune(start, text=play, method="lora", out=out, settings=STEPS, device="cpu")
    (folder / "writer" / FILE).write_text(TEMPLATE)
    (folder / "reviews" / "calibration.json").write_text(json.dumps({"temperature": 1.3}))
    everything = ("open", "inspect", "card", "metrics", "resume", "show")
    seeds = {name: Seed("runs", folder / name, everything) for name in ("translator", "writer", "reviews", "adapter")}
    for name, sizes in {"alibi": {"kind": "gpt", "positions": {"kind": "alibi"}}, "mask": {"kind": "bert"}}.items():
        text_runs.write_random(folder / name, **sizes)
        seeds[name] = Seed("runs", folder / name, ("open", "inspect"))
    patches = {"kind": "vit", "patch": 4, "n_layers": 1, "d_model": 10, "d_ff": 13, "n_heads": 5, "n_classes": 2}
    media_models.write_random(folder / "patches", patches, ["horizontal", "vertical"])
    media_models.write_random(folder / "coder", {"kind": "autoencoder", "widths": [5, 7], "d_code": 3}, ["image"])
    for name in ("patches", "coder"):
        seeds[name] = Seed("runs", folder / name, ("open", "inspect"))
    return seeds


def hub(folder: Path) -> dict[str, Seed]:
    """Hugging Face folders, whole, in shards and pickled, and their tokenizers alone."""
    written = hub_seeds.write(folder / "hub")
    return {name: Seed("hub", path, ("import", "open", "inspect")) for name, path in written.items()} | {
        f"tokenizer of {path.name}": Seed("tokenizers", path, ("tokenizer",))
        for path in hub_seeds.write_tokenizers(folder / "tokenizers")
    }


def files(folder: Path) -> dict[str, Seed]:
    """Single files: .gguf, .pth and .safetensors models, and recipes."""
    seeds = {path.name: Seed("model files", path, ("import",)) for path in hub_seeds.write_files(folder / "files")}
    for path in sorted((TESTS.parent / "recipes").glob("*.toml"))[:12]:
        seeds[path.name] = Seed("recipes", path, ("recipe", "outline"))
    return seeds


def built(folder: Path) -> dict[str, Seed]:
    """Folders of `data build`: pairs and text, in several shards."""
    import clearformer
    from clearformer.data.built import documents, pieces

    place = folder / "built"
    with patch.object(pieces, "SHARD_ROWS", 20), patch.object(documents, "SHARD_CHARS", 400):
        held_out = ["text.kind=word", "text.min_frequency=1", "data.held_out=0.1"]
        clearformer.build_data(place / "pairs", pairs=folder / "pairs.tsv", settings=held_out)
        clearformer.build_data(place / "text", text=folder / "play.txt", vocab_size=300)
    (place / "pairs" / "remote.json").write_text(json.dumps({"url": f"file://{place}/pairs"}))
    return {
        f"built {name}": Seed("built", place / name, ("shards", f"train {name}", "verify"))
        for name in ("pairs", "text")
    }


torch.set_num_threads(1)

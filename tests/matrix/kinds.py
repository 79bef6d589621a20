"""The data of every task as a file of every kind, each written by the library that usually writes it.

    write("xlsx", folder, columns("pairs", "xlsx"))        the path of a workbook that openpyxl wrote

Translation memories are written by translate-toolkit, all other tables by `write_table`.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from table_files import compress, write_table

N = 23
MULTILINE = [f'the "{i}th" dog, or {i * i}; naïve\n  yes &amp; <b>no</b>' for i in range(N)]
FRENCH = [f"le {i}ᵉ chien, été « {i} »" for i in range(N)]
LABELS = ["très bon" if i % 2 else "mal" for i in range(N)]
PLAIN = ["tsv", "tsv.gz", "tsv.zst", "txt", "txt.gz", "txt.zst"]  # a cell is on one line
TABLES = [
    *PLAIN, "csv", "csv.gz", "csv.zst", "semicolons.csv", "tabs.csv", "utf8.csv", "utf16.csv", "utf32.csv", "jsonl",
    "jsonl.gz", "jsonl.zst", "json", "json.gz", "json.zst", "parquet", "xlsx", "dataset", "dict/train", "dict",
]  # fmt: skip
LISTS = [kind for kind in TABLES if kind.startswith(("json", "parquet", "d"))]  # a cell may be a list
MEMORIES = ["tmx", "tmx.gz", "tmx.zst", "xliff", "xlf", "2.xlf"]
CONLL = ["conll", "conll.gz", "conll.zst"]
IMAGES = ["class folder", "flat folder", "npz", "idx3-ubyte", "idx3-ubyte.gz", "image parquet", "image dataset"]
SOUNDS = ["word folder", "audio dataset"]
KINDS = [*TABLES, *MEMORIES, *CONLL, *IMAGES, *SOUNDS]


ROWS = {
    "dataset": "saved dataset",
    "dict/train": "saved dataset",
    "dict": "several saved splits",
    "class folder": "a folder of images per class",
    "flat folder": "a folder of images",
    "idx3-ubyte": "idx3-ubyte",
    "idx3-ubyte.gz": "idx3-ubyte",
    "image parquet": ".parquet with images",
    "image dataset": "saved dataset with images",
    "word folder": "a folder of recordings per word",
    "audio dataset": "saved dataset with recordings",
}


def row_of(kind: str) -> str:
    """Return the row of the table in docs/recipes.md for a kind of file."""
    if kind in ROWS:
        return ROWS[kind]
    suffix = kind.removesuffix(".gz").removesuffix(".zst").rpartition(".")[2]
    return ".xliff" if suffix == "xlf" else f".{suffix}"


def texts(kind: str) -> list[str]:
    """Return texts with quotation marks, separators and accents, and with line ends if a cell may have them."""
    return [text.replace("\n  ", " ") for text in MULTILINE] if kind in PLAIN else MULTILINE


def columns(task: str, kind: str) -> dict[str, list[Any]]:
    """Return the data of a task as columns with names that are recognised."""
    if task == "pairs":
        return {"en": texts(kind), "fr": FRENCH}
    if task == "labels":
        return {"review": texts(kind), "label": LABELS}
    if task == "words":
        sentences = [text.split() for text in MULTILINE]
        return {"tokens": sentences, "labels": [["QUOTE" if '"' in w else "O" for w in words] for words in sentences]}
    if task == "recordings":
        return {"path": [f"{i}.wav" for i in range(N)], "text": [text.replace("\n  ", " ") for text in MULTILINE]}
    return {"text": texts(kind)}


def write(kind: str, folder: Path, data: dict[str, list[Any]]) -> Path:
    """Write columns, and return the path of the file or folder."""
    folder.mkdir(parents=True, exist_ok=True)
    if kind in MEMORIES:
        return write_memory(kind, folder, data)
    if kind in CONLL:
        return write_conll(kind, folder, data)
    if kind in IMAGES:
        return write_images(kind, folder)
    if kind in SOUNDS:
        return write_sounds(kind, folder)
    if kind.startswith("dict"):
        import datasets

        datasets.disable_progress_bar()
        split = datasets.Dataset.from_dict(data)
        datasets.DatasetDict(train=split, test=split.select(range(3))).save_to_disk(folder / "dict")
        return folder / kind
    if kind not in LISTS:
        data = {name: [" ".join(v) if isinstance(v, list) else v for v in values] for name, values in data.items()}
    if kind.startswith("txt"):
        path = write_table(kind.replace("txt", "tsv"), folder, data)
        return path.rename(folder / f"table.{kind}")
    return write_table(kind, folder, data)


def write_memory(kind: str, folder: Path, data: dict[str, list[Any]]) -> Path:
    """Write a translation memory with translate-toolkit; a table without two languages gets a second column."""
    from translate.storage import tmx, xliff, xliff2

    sources, targets = (list(data.values()) * 2)[:2]
    file = tmx.tmxfile() if kind.startswith("tmx") else xliff2.Xliff2File() if kind == "2.xlf" else xliff.xlifffile()
    if not kind.startswith("tmx"):
        file.setsourcelanguage("en")
        file.settargetlanguage("fr")
    for source, target in zip(map(str, sources), map(str, targets)):
        if kind.startswith("tmx"):
            file.addtranslation(source, "en", target, "fr")
        else:
            file.addsourceunit(source).target = target
    path = folder / f"memory.{kind}"
    path.write_bytes(compress(kind, bytes(file)))
    return path


def write_conll(kind: str, folder: Path, data: dict[str, list[Any]]) -> Path:
    columns = list(data.values())
    pairs = zip(*columns) if len(columns) == 2 else ((words, words) for words in columns[0])
    lines = ("".join(f"{word}\t{label}\n" for word, label in zip(a, b)) for a, b in pairs)
    path = folder / f"words.{kind}"
    path.write_bytes(compress(kind, "\n".join(lines).encode()))
    return path


def pixels() -> tuple[np.ndarray, np.ndarray]:
    images = np.random.default_rng(0).integers(0, 256, (N, 8, 8), dtype="uint8")
    return images, (np.arange(N) % 2).astype("uint8")


def write_images(kind: str, folder: Path) -> Path:
    from PIL import Image

    images, labels = pixels()
    if kind.endswith("folder"):
        for i, (image, label) in enumerate(zip(images, labels)):
            place = folder / "images" / (LABELS[label] if kind.startswith("class") else "")
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(place / f"{i:02}.png")
        return folder / "images"
    if kind == "npz":
        np.savez(folder / "images.npz", images=images, labels=labels)
        return folder / "images.npz"
    if kind.startswith("idx3"):
        for name, array in ("images-idx3", images), ("labels-idx1", labels):
            sizes = np.array(array.shape, ">i4").tobytes()
            data = b"\0\0\x08" + bytes([array.ndim]) + sizes + array.tobytes()
            (folder / f"train-{name}-ubyte{kind.removeprefix('idx3-ubyte')}").write_bytes(compress(kind, data))
        return folder / f"train-images-{kind}"
    import datasets

    datasets.disable_progress_bar()
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=LABELS[:2])})
    rows = {"image": [Image.fromarray(image) for image in images], "label": labels.tolist()}
    dataset = datasets.Dataset.from_dict(rows, features=features)
    if kind == "image parquet":
        dataset.to_parquet(folder / "images.parquet")
        return folder / "images.parquet"
    dataset.save_to_disk(folder / "images")
    return folder / "images"


def write_wavs(folder: Path) -> list[Path]:
    """Write the sound files of a table: tones of a second."""
    import soundfile

    folder.mkdir(parents=True, exist_ok=True)
    for i in range(N):
        soundfile.write(folder / f"{i}.wav", 0.2 * np.sin(np.arange(4000) * (1 + i) / 40), 4000)
    return [folder / f"{i}.wav" for i in range(N)]


def write_sounds(kind: str, folder: Path) -> Path:
    wavs = write_wavs(folder / "wavs")
    if kind == "word folder":
        for i, path in enumerate(wavs):
            place = folder / "words" / LABELS[i]
            place.mkdir(parents=True, exist_ok=True)
            path.rename(place / path.name)
        return folder / "words"
    import datasets

    datasets.disable_progress_bar()
    sounds = [{"bytes": path.read_bytes(), "path": path.name} for path in wavs]  # as the type Audio encodes them
    dataset = datasets.Dataset.from_dict({"audio": sounds, "text": LABELS})
    dataset.cast_column("audio", datasets.Audio(decode=False)).save_to_disk(folder / "sounds")
    return folder / "sounds"

"""Every kind of Python object × every task: one step of training, or one sentence; never a TypeError."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearformer.errors import ClearformerError

from .cells import TASKS, as_texts, examples, expected, require_sentence, stored
from .kinds import LABELS, N, columns, pixels, write_images, write_wavs
from .test_training import train_in_python

pytestmark = pytest.mark.matrix
Rows = list[dict[str, Any]]


def rows_of(task: str, folder: Path) -> Rows:
    """Return the data of a task as dictionaries; images and recordings are paths of files."""
    data = TASKS[task].data
    if data == "images":
        write_images("class folder", folder)
        paths = sorted((folder / "images").rglob("*.png"), key=lambda path: path.name)
        return [{"image": str(path), "label": path.parent.name} for path in paths]
    if data == "recordings":
        write_wavs(folder)
        table = columns(data, "jsonl")
        table["path"] = [str(folder / name) for name in table["path"]]
    else:
        table = columns(data, "jsonl")
    return [dict(zip(table, row)) for row in zip(*table.values())]


def pandas(rows: Rows) -> Any:
    import pandas

    return pandas.DataFrame(rows)


def polars(rows: Rows) -> Any:
    import polars

    return polars.DataFrame(rows)


def arrow(rows: Rows) -> Any:
    import pyarrow

    return pyarrow.Table.from_pylist(rows)


def dataset(rows: Rows) -> Any:
    import datasets

    return datasets.Dataset.from_list(rows)


def torch_dataset(rows: Rows) -> Any:
    from torch.utils.data import Dataset

    class Listed(Dataset):
        def __len__(self) -> int:
            return len(rows)

        def __getitem__(self, i: int) -> tuple[Any, ...]:
            if i >= len(rows):
                raise IndexError(i)
            return tuple(rows[i].values())

    return Listed()


def torch_stream(rows: Rows) -> Any:
    from torch.utils.data import IterableDataset

    class Streamed(IterableDataset):
        def __iter__(self) -> Iterator[dict[str, Any]]:
            return iter(rows)

    return Streamed()


OBJECTS: dict[str, Callable[[Rows], Any]] = {
    "list of tuples": lambda rows: [tuple(row.values()) for row in rows],
    "list of lists": lambda rows: [list(row.values()) for row in rows],
    "list of dictionaries": lambda rows: rows,
    "tuple of tuples": lambda rows: tuple(tuple(row.values()) for row in rows),
    "iterator": lambda rows: iter([tuple(row.values()) for row in rows]),
    "generator": lambda rows: (row for row in rows),
    "map": lambda rows: map(dict, rows),
    "dictionary of columns": lambda rows: {name: [row[name] for row in rows] for name in rows[0]},
    "pandas": pandas,
    "polars": polars,
    "polars lazily": lambda rows: polars(rows).lazy(),
    "pyarrow": arrow,
    "datasets": dataset,
    "datasets as a stream": lambda rows: dataset(rows).to_iterable_dataset(),
    "datasets as numpy": lambda rows: dataset(rows).with_format("numpy"),
    "torch": torch_dataset,
    "torch as a stream": torch_stream,
}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", OBJECTS)
def test_an_object_is_trained_on(kind: str, task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, out = rows_of(task, tmp_path / "files"), tmp_path / "run"
    capsys.readouterr()
    report = train_in_python(task, OBJECTS[kind](rows), out, valid=OBJECTS[kind](rows[:3]))
    assert report["steps"] == 1
    as_file = "class folder" if TASKS[task].data == "images" else "jsonl"
    assert sorted(examples(out)) == sorted(expected(task, as_file))
    assert stored(capsys.readouterr().err) == N


def test_arrays_of_images_and_samples_are_trained_on(tmp_path: Path) -> None:
    import torch

    images, labels = pixels()
    for i, data in enumerate(
        [
            (images, labels),
            (torch.from_numpy(images), torch.from_numpy(labels)),
            [(image.astype("float32") / 255, label) for image, label in zip(images, labels)],
            {"images": images, "labels": labels},
        ]
    ):
        train_in_python("image-classification", data, tmp_path / f"images {i}", valid=(images[:3], labels[:3]))
        assert len(examples(tmp_path / f"images {i}")) == N
    sound = (0.2 * np.sin(np.arange(8000) / 9)).astype("float32")
    for i, kind in enumerate(["float32", "float64", "int16", "int32", "uint8"]):
        scale = {"f": 1, "i": 2 ** (8 * np.dtype(kind).itemsize - 1) - 1, "u": 127}[np.dtype(kind).kind]
        samples = (sound.astype("float64") * scale + (128 if kind == "uint8" else 0)).astype(kind)
        data = [((samples, 4000), label) for label in LABELS]
        train_in_python("ctc", data, tmp_path / f"sounds {i}")
        assert sorted(map(as_texts, _recordings(tmp_path / f"sounds {i}"))) == sorted((label,) for label in LABELS)


def _recordings(run: Path) -> Any:
    from clearformer.recipe import Recipe

    return Recipe.read(run / "recipe.toml").data.train.read()


def several_splits() -> Any:
    import datasets

    split = dataset([{"en": "a", "fr": "b", "text": "a", "label": "b"}])
    return datasets.DatasetDict(train=split, test=split)


class Broken:
    def __getitem__(self, i: int) -> Any:
        return {}[i]


WRONG: dict[str, Callable[[], Any]] = {
    "a number": lambda: 7,
    "a float": lambda: 0.5,
    "true": lambda: True,
    "bytes": lambda: b"a\tb",
    "an object": object,
    "a class": lambda: dict,
    "a function": lambda: len,
    "an empty list": list,
    "an empty dictionary": dict,
    "numbers": lambda: [1, 2, 3],
    "missing values": lambda: [None, None],
    "empty rows": lambda: [(), ()],
    "empty dictionaries": lambda: [{}, {}],
    "unequal columns": lambda: {"text": ["a"], "label": []},
    "columns that are none": lambda: {"text": 7, "label": 8},
    "a set of numbers": lambda: {1, 2},
    "an array of a number": lambda: np.float32(3),
    "an array of cubes": lambda: np.zeros((2, 2, 2, 2, 2)),
    "objects in cells": lambda: [(object(), object())],
    "a path of nothing": lambda: Path("nowhere.tsv"),
    "a file that is open": lambda: open(__file__),  # noqa: SIM115
    "several splits": several_splits,
    "an index that is none": Broken,
    "mixed rows": lambda: [("a", "b"), {"text": "a", "label": "b"}, 7],
}


@pytest.mark.parametrize("task", ["translation", "causal-lm", "classification", "image-classification", "ctc"])
@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_object_is_one_sentence(kind: str, task: str, tmp_path: Path) -> None:
    data = WRONG[kind]()
    if task == "causal-lm" and kind == "a file that is open":
        train_in_python(task, data, tmp_path / "run", valid=["a line"])
        assert len(examples(tmp_path / "run")) > 100  # an open file is an iterator of lines
        data.close()
        return
    with pytest.raises(ClearformerError) as error:
        train_in_python(task, data, tmp_path / "run", valid=[("a", "b")])
    require_sentence(error.value, "")
    if hasattr(data, "close"):
        data.close()

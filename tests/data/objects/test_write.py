"""Objects of every library become the rows that a file with the same content has."""

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clearformer.data.objects.rows import describe, open_rows
from clearformer.data.objects.staging import FOLDERS, TITLES, new_folder, staged, titled
from clearformer.data.objects.write import write_object
from clearformer.errors import DataError

PAIRS = [("a dog", "ein Hund"), ('two, "cats"\nhere', "zwei; Katzen\t!"), ("the house", "das Haus")]
EN, DE = map(list, zip(*PAIRS))


def write(value: Any, folder: Path, keyword: str = "pairs") -> tuple[list[list[Any]], str]:
    """The cells of the rows that are written, and the description of the object."""
    path, title, _ = write_object(open_rows(value, keyword), keyword, folder)
    return [list(json.loads(line).values()) for line in path.read_text("utf-8").splitlines()], title


class Indexed(torch.utils.data.Dataset):
    """A map-style dataset that raises no IndexError, as many do."""

    def __len__(self) -> int:
        return len(PAIRS)

    def __getitem__(self, i: int) -> tuple[str, str]:
        return PAIRS[i % len(PAIRS)]


class Streamed(torch.utils.data.IterableDataset):
    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(PAIRS)


def frame(library: str, lazy: bool = False) -> Any:
    columns = {"en": EN, "de": DE}
    if library == "datasets":
        return pytest.importorskip("datasets").Dataset.from_dict(columns)
    if library == "pyarrow":
        return pytest.importorskip("pyarrow").table(columns)
    made = pytest.importorskip(library).DataFrame(columns)
    return made.lazy() if lazy else made


OBJECTS = {
    "tuples": (lambda: PAIRS, "a list of 3 pairs"),
    "lists": (lambda: [list(pair) for pair in PAIRS], "a list of 3 pairs"),
    "dictionaries": (lambda: [{"en": a, "de": b} for a, b in PAIRS], "a list of 3 pairs"),
    "nested": (lambda: ({"translation": {"en": a, "de": b}} for a, b in PAIRS), "a generator of 3 pairs"),
    "iterator": (lambda: iter(PAIRS), "an iterator of 3 pairs"),
    "zip": (lambda: zip(EN, DE), "an iterator of 3 pairs"),
    "header": (lambda: [("English", "German"), *PAIRS], "a list of 3 pairs"),
    "columns": (lambda: {"en": EN, "de": DE}, "a dict of 3 pairs"),
    "array": (lambda: np.array(PAIRS), "a numpy ndarray of 3 pairs"),
    "pandas": (lambda: frame("pandas"), "a pandas DataFrame of 3 pairs"),
    "polars": (lambda: frame("polars"), "a polars DataFrame of 3 pairs"),
    "lazy polars": (lambda: frame("polars", lazy=True), "a polars LazyFrame of 3 pairs"),
    "pyarrow": (lambda: frame("pyarrow"), "a pyarrow Table of 3 pairs"),
    "datasets": (lambda: frame("datasets"), "a datasets Dataset of 3 pairs"),
    "streamed datasets": (lambda: frame("datasets").to_iterable_dataset(), "a datasets IterableDataset of 3 pairs"),
    "torch": (Indexed, "an Indexed of 3 pairs"),
    "streamed torch": (Streamed, "a Streamed of 3 pairs"),
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_every_object_has_the_same_rows(kind: str, tmp_path: Path) -> None:
    make, title = OBJECTS[kind]
    rows, written = write(make(), tmp_path)
    if kind == "nested":
        rows = [list(row[0].values()) for row in rows]
    assert rows == [list(pair) for pair in PAIRS]
    assert written == title


def test_a_frame_with_numbered_columns_has_no_names(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    path, _, names = write_object(open_rows(pandas.DataFrame(PAIRS), "pairs"), "pairs", tmp_path)
    assert names == ["source", "target"]
    assert list(json.loads(path.read_text().splitlines()[0])) == names


def test_cells_of_every_type_become_json(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    rows, _ = write(
        pandas.DataFrame(
            {
                "text": ["a", None, "c"],
                "label": pandas.Categorical(["x", "y", "x"]),
                "n": np.array([1, 2, 3], "int16"),
                "f": [0.5, np.nan, 2.0],
                "day": [pandas.Timestamp("2024-01-02"), pandas.NaT, datetime.datetime(2024, 1, 3)],
                "missing": pandas.array([True, None, False], "boolean"),
            }
        ),
        tmp_path,
        "labels",
    )
    assert rows == [
        ["a", "x", 1, 0.5, "2024-01-02 00:00:00", True],
        ["", "y", 2, "", "", ""],
        ["c", "x", 3, 2.0, "2024-01-03 00:00:00", False],
    ]
    tensors = [{"text": "a", "label": torch.tensor(2)}, {"text": np.str_("b"), "label": np.float32(0.5)}]
    assert write(tensors, tmp_path, "labels")[0] == [["a", 2], ["b", 0.5]]
    assert write([(["EU", "rejects"], ("B", "O"))], tmp_path, "labels")[0] == [[["EU", "rejects"], ["B", "O"]]]


def test_numbered_classes_of_datasets_have_their_names(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    label = datasets.ClassLabel(names=["bad", "good"])
    features = datasets.Features(text=datasets.Value("string"), label=label, tags=datasets.Sequence(label))
    data = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [1, 0], "tags": [[0], [1, 1]]}, features)
    expected = [["a", "good", ["bad"]], ["b", "bad", ["good", "good"]]]
    assert write(data, tmp_path, "labels")[0] == expected
    assert write(data.with_format("torch"), tmp_path, "labels")[0] == expected
    with pytest.raises(DataError, match=r"several splits.*\nhint: give one of them: labels=data\['train'\] and"):
        write(datasets.DatasetDict(train=data, test=data), tmp_path, "labels")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (5, "pairs= cannot be an int"),
        (b"a", "pairs= cannot be bytes"),
        (object(), "pairs= cannot be an object"),
        (print, "pairs= cannot be a builtin_function_or_method"),
        (list, "pairs= cannot be a type"),
        (np.float32(1), "pairs= cannot be a numpy float32"),
        (torch.tensor(1), "pairs= cannot be a torch Tensor"),
        ([], "pairs= is empty: a list without rows"),
        (iter(()), "pairs= is empty: an iterator without rows"),
        ([("en", "de")], "pairs= is empty: a list with a header only"),
        ([1, 2], r"a list, row 1: an int, not a tuple \(source, target\)"),
        ([("a", "b"), None], "a list, row 2: a NoneType, not a tuple"),
        ([("a", "b"), ("c",)], "a list, row 2: a tuple of 1 value, not a tuple"),
        ([{}, {}], "a list, row 1: a row without columns"),
        ([("a", b"b")], "a list, row 1: bytes in a cell"),
        ([("a", object())], "a list, row 1: an object in a cell"),
        ([("a", "\ud800")], "a list, row 1: text that cannot be encoded"),
        ({"en": ["a"], "de": "b"}, "pairs= is a dictionary, but `de` is a str, not a column"),
        ({"en": ["a"], "de": 1}, "pairs= is a dictionary, but `de` is an int, not a column"),
        ({"en": ["a"], "de": []}, "columns of different lengths: `en` has 1 row and `de` has 0 rows"),
    ],
)
def test_other_objects_are_one_sentence(value: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"{message}.*\nhint: "):
        write(value, tmp_path)


def test_objects_are_named_by_type_and_library() -> None:
    assert [describe(value) for value in ([], (), {}, 1, "", Indexed())] == [
        "a list",
        "a tuple",
        "a dict",
        "an int",
        "a str",
        "an Indexed",
    ]
    assert describe(np.zeros(1)) == "a numpy ndarray"


def test_messages_name_the_object_and_files_are_removed() -> None:
    paths = []

    @staged()
    def read() -> None:
        path = new_folder() / "pairs.jsonl"
        path.write_text("x")
        TITLES[path] = "a list of 7 pairs"
        paths.append(path)
        assert titled(f"{path}: using a") == "a list of 7 pairs: using a"
        raise DataError(f"{path}:3: wrong", f"see {path}")

    with pytest.raises(DataError, match=r"^a list of 7 pairs, row 3: wrong\nhint: see a list of 7 pairs$"):
        read()
    [path] = paths
    assert not path.exists()
    assert path not in TITLES
    with staged(keep=True):
        kept = new_folder()
    assert kept.is_dir()
    assert kept in FOLDERS

"""Rows that parse, but whose names or levels no memory or stack could hold."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clearformer.data.files import table as module
from clearformer.data.files.open import open_table
from clearformer.data.files.records import distinct, open_records
from clearformer.data.sources import MAX_DEPTH, list_columns
from clearformer.errors import DataError

READERS: list[Callable[[Path], Any]] = [
    lambda path: open_table(path).names(),
    lambda path: list(open_table(path).read(["text"])),
    lambda path: open_records(path, "text").scan(),
]


def write(path: Path, text: str) -> Path:
    path.write_text(f"[{text}]" if path.suffix == ".json" else f"{text}\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 480, 100_000])
@pytest.mark.parametrize(("begin", "end"), [('{"a": ', "}"), ('{"text": "x", "b": [', "]}")])
def test_deep_objects_are_one_sentence(
    tmp_path: Path, name: str, depth: int, read: Callable[[Path], Any], begin: str, end: str
) -> None:
    content = begin * depth + "1" + end * depth
    with pytest.raises(DataError, match="too deeply nested") as error:
        read(write(tmp_path / name, content))
    assert "\n" not in error.value.message


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_objects_of_many_levels_are_read(tmp_path: Path, name: str) -> None:
    """Below the limit, and many objects beside each other, which are not levels."""
    deep = '{"a": ' * (MAX_DEPTH - 1) + "1" + "}" * (MAX_DEPTH - 1)
    path = write(tmp_path / name, f'{{"text": "x", "deep": {deep}, "wide": [{"{}, " * 500}{{}}]}}')
    assert open_table(path).names()[1].count(".") == MAX_DEPTH - 1
    assert [row for _, (row,) in open_table(path).read(["text"])] == ["x"]
    assert json.dumps(next(open_records(path, "text").read()).row)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_a_number_of_thousands_of_digits_is_one_sentence(tmp_path: Path, name: str, read: Callable) -> None:
    with pytest.raises(DataError, match=r"not valid JSON .*4300 digits"):
        read(write(tmp_path / name, f'{{"text": "a", "n": {"1" * 5000}}}'))


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_a_long_key_is_not_repeated_for_every_key_inside_it(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_CELL", 10_000)
    inner = {str(n): 1 for n in range(50)}
    path = write(tmp_path / name, json.dumps({"k" * 300: inner, "text": "a"}))
    with pytest.raises(DataError, match=r"'kkkk.*… is a key of an object whose keys have more than"):
        open_table(path).names()
    few = write(tmp_path / f"few.{name}", json.dumps({"k" * 300: {"1": 1, "2": {"3": 4}}, "text": "a"}))
    assert open_table(few).names() == ["k" * 300 + ".1", "k" * 300 + ".2.3", "text"]


def test_names_that_repeat_are_counted_on() -> None:
    """Also a hundred thousand of them: the next number is known."""
    assert distinct(["a", "", "a", "a_2", "a", ""]) == ["a", "column_1", "a_2", "a_2_2", "a_3", "column_5"]
    names = distinct(["a"] * 100_000)
    assert len(set(names)) == 100_000
    assert names[-1] == "a_100000"


@pytest.mark.parametrize(("name", "separator"), [("a.tsv", "\t"), ("a.csv", ",")])
@pytest.mark.parametrize("read", [READERS[0], READERS[2]])
def test_too_many_columns_are_one_sentence(tmp_path: Path, name: str, separator: str, read: Callable) -> None:
    path = tmp_path / name
    path.write_text(f"text{separator * (module.MAX_COLUMNS - 1)}\nx{separator * (module.MAX_COLUMNS - 1)}\n")
    read(path)
    path.write_text(f"text{separator * module.MAX_COLUMNS}\nx\n")
    with pytest.raises(DataError, match="16,385 columns, more than 16,384"):
        read(path)


def test_a_hint_lists_some_columns_only() -> None:
    assert list_columns(["a", "b"], "--columns") == "the columns are a, b; choose with --columns"
    hint = list_columns([f"c{n}" for n in range(1000)])
    assert hint.startswith("the columns are c0, c1, ")
    assert hint.endswith("c49, … (1,000 in all)")

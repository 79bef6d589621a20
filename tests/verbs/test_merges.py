"""merges: the words of the notes, a file, and what cannot be merged."""

from pathlib import Path

import pytest

import clearformer
from clearformer.errors import DataError


def test_the_words_of_the_notes() -> None:
    """The third merge is low+e: `er` and `est` never stand beside `low`."""
    result = clearformer.merges(["low"] * 5 + ["lower"] * 2 + ["lowest"] * 3, n=3)
    assert [merge["pair"] for merge in result["merges"]] == [["l", "o"], ["lo", "w"], ["low", "e"]]
    assert result["start"] == [["l", "o", "w"], ["l", "o", "w", "e", "r"], ["l", "o", "w", "e", "s", "t"]]
    assert result["merges"][-1]["words"] == [["low"], ["lowe", "r"], ["lowe", "s", "t"]]
    assert result["words"] == {"low": 5, "lower": 2, "lowest": 3}


def test_words_are_followed_through_the_merges_of_a_file(tmp_path: Path) -> None:
    """Also a word that the file does not have."""
    path = tmp_path / "text.txt"
    path.write_text("low low lower\nlow\n", encoding="utf-8")
    result = clearformer.merges(["slow"], path, n=2)
    assert [merge["words"] for merge in result["merges"]] == [[["s", "lo", "w"]], [["s", "low"]]]
    assert list(clearformer.merges(text=path)["words"]) == ["low", "lower"]


def test_nothing_to_merge() -> None:
    with pytest.raises(DataError, match="there are no words to merge"):
        clearformer.merges([])

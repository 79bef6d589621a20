"""What a vocabulary covers, counted by hand on a few words."""

import gzip
import json
from pathlib import Path

import pytest

from clearformer.text import TextConfig, train_tokenizer

ROWS = [["the", "cat", "eats"], ["the", "dog", "ate"]]


def test_words_without_a_token_are_unknown() -> None:
    from vocabularies import coverage

    tokenizer = train_tokenizer([" ".join(row) for row in ROWS], TextConfig(kind="word", min_frequency=1, strict=False))
    share = coverage(tokenizer, [["the", "cat", "ate"], ["the", "bat", "eats", "bats", "the"]])
    assert share == pytest.approx({"unknown": 2 / 8, "tokens_per_word": 1.0})


def test_letters_spell_every_word_of_known_letters() -> None:
    from vocabularies import coverage

    tokenizer = train_tokenizer([" ".join(row) for row in ROWS], TextConfig(kind="char", min_frequency=1, strict=False))
    assert coverage(tokenizer, [["get", "these"], ["box"]]) == pytest.approx(
        {"unknown": 1 / 3, "tokens_per_word": 11 / 3}
    )


@pytest.mark.parametrize(("word", "is_related"), [("eats", True), ("making", True), ("taller", False), ("ate", False)])
def test_a_related_word_is_a_known_one_with_an_ending(word: str, is_related: bool) -> None:
    from vocabularies import related

    assert related(word, {"eat", "make"}) == is_related


def test_each_sentence_counts_once_and_every_fiftieth_is_held_out(tmp_path: Path) -> None:
    from vocabularies import sentences

    file = tmp_path / "fra.txt.gz"
    with gzip.open(file, "wt", encoding="utf-8") as lines:
        lines.writelines(f"It's number {i:03}.\tfrançais\n" for i in [*range(120), 0, 7])
    train, test = sentences(file)
    assert test == [["it's", "number", f"{i:03}"] for i in (0, 50, 100)]
    assert len(train) == 117


def test_the_figure_shows_every_vocabulary(tmp_path: Path) -> None:
    from vocabularies import KINDS, RESULTS, plot

    result = json.loads((RESULTS / "vocabularies.json").read_text(encoding="utf-8"))
    assert result["kinds"].keys() == KINDS.keys()
    plot(result, tmp_path / "figure.svg")
    text = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    for label in (*KINDS, "14,219 tokens", "2.01%", "3.97"):
        assert label in text

"""The sentences that the scorers learn from, and the place of a word in a blank."""

import gzip
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from clearformer.recipe import Recipe


@pytest.fixture
def scorers() -> Any:
    return import_module("sentence_scorers")


def test_each_sentence_occurs_once_in_the_same_order(scorers: Any, tmp_path: Path) -> None:
    with gzip.open(tmp_path / "pairs.gz", "wt", encoding="utf-8") as pairs:
        pairs.writelines(f"Sentence {i % 20}.\tPhrase {i}.\tCC\n" for i in range(40))
    lines = scorers.write_sentences(tmp_path / "pairs.gz", tmp_path / "new" / "a.txt").read_text().splitlines()
    assert sorted(lines) == sorted(f"Sentence {i}." for i in range(20))
    assert lines != sorted(lines)
    again = scorers.write_sentences(tmp_path / "pairs.gz", tmp_path / "b.txt").read_text().splitlines()
    assert again == lines


def test_the_best_word_has_the_first_place(scorers: Any) -> None:
    class Judge:
        def weigh(self, left: str, right: str, words: Any) -> list[tuple[str, float]]:
            assert (left, right) == ("The man ", " a cart")
            return sorted(((word, -float(len(word))) for word in words), key=lambda entry: -entry[1])

    assert scorers.place(Judge(), "slept", ("laughed", "slept", "ran")) == 2


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "both ways", "two layers"])
def test_every_network_is_a_valid_recipe(scorers: Any, name: str) -> None:
    base = Recipe.read(scorers.RECIPE, list(scorers.NETWORKS[name])).model.base
    assert base.kind == ("birnn" if name == "both ways" else "rnn-lm")
    assert base.cell == ("rnn-sigmoid" if name == "sigmoid" else "rnn")
    assert base.n_layers == (2 if name == "two layers" else 1)

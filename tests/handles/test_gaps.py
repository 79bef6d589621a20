"""Gaps are filled by what makes the whole sentence likely: judged by a model whose probabilities are known."""

from itertools import pairwise
from math import log

import pytest

from clearformer.errors import DataError
from clearformer.handles.gaps import fill, first_word, repair
from clearformer.handles.scorer import Score
from clearformer.handles.writer import Continuation

PAIRS = {  # p(word | word before), of a language with two sentences and some slips
    "^": {"the": 0.9, "a": 0.1},
    "the": {"man": 0.7, "cart": 0.3},
    "a": {"cart": 0.9, "man": 0.1},
    "man": {"pulled": 0.8, "pooled": 0.1, "$": 0.1},
    "pulled": {"a": 0.7, "the": 0.2, "$": 0.1},
    "pooled": {"$": 0.9, "a": 0.1},
    "cart": {"$": 1.0},
}


class Bigrams:
    """A language model small enough to be worked by hand."""

    def score(self, texts, closed=True):
        rows = []
        for text in texts:
            words = ["^", *text.split(), *(["$"] if closed else [])]
            chances = [PAIRS.get(a, {}).get(b, 1e-6) for a, b in pairwise(words)]
            rows.append(Score(text, sum(map(log, chances)), len(chances)))
        return rows

    def generate(self, prompts, n=1, stop=(), seed=None, **settings):
        told = []
        for prompt in prompts:
            words = PAIRS[prompt.split()[-1] if prompt.split() else "^"]
            told.append([Continuation(f" {w} and", [], log(p), [], "length") for w, p in words.items() if w != "$"])
        return told


def test_a_gap_is_filled_by_the_word_that_what_follows_asks_for() -> None:
    best = fill(Bigrams(), "the man ___ a cart")
    assert [row.word for row in best] == ["pulled", "pooled"]
    assert best[0].text == "the man pulled a cart"
    assert best[0].position == 2
    assert best[0].logprob == pytest.approx(log(0.9 * 0.7 * 0.8 * 0.7 * 0.9 * 1.0))
    # p(pulled) : p(pooled) = 0.8 · 0.7 : 0.1 · 0.1
    assert best[0].probability == pytest.approx(0.56 / 0.57)
    assert sum(row.probability for row in best) == pytest.approx(1)
    with pytest.warns(DeprecationWarning, match="use Filling.probability"):
        assert best[0].share == best[0].probability


def test_candidates_can_be_given() -> None:
    best = fill(Bigrams(), "the ___ pulled a cart", candidates=["cart", "man"], n=1)
    assert [row.word for row in best] == ["man"]


def test_a_missing_word_is_found_with_its_place() -> None:
    """ "the man a cart" lacks its verb, after the second word."""
    best = repair(Bigrams(), "the man a cart")[0]
    assert (best.text, best.word, best.position) == ("the man pulled a cart", "pulled", 2)


def test_only_one_gap() -> None:
    for text, blanks in (("the man", "0 blanks"), ("___ man ___", "2 blanks")):
        with pytest.raises(DataError, match=f"has {blanks}, but exactly one is required\n") as caught:
            fill(Bigrams(), text)
        assert caught.value.hint == "write ___ once, in place of the missing word"


@pytest.mark.parametrize(
    ("text", "word"),
    [(" man pulled", "man"), (" man's cart.", "man's"), (" man", None), ("kind of", None), (" 12 men", None),
     ("", None), (" été.", "été"), ("\nThou art", "Thou")],
)  # fmt: skip
def test_a_word_is_whole_and_new(text: str, word: str | None) -> None:
    assert first_word(text) == word

"""ROUGE by hand, and as rouge_score computes it."""

from random import Random

import pytest

from clearformer.errors import DataError
from clearformer.evaluation.metrics.rouge import common_length, rouge_l, rouge_n, rouge_values, words_of

WORDS = ("the", "police", "killed", "gunman", "A", "cat's", "2nd", "of-course", "dog", "the")


def test_the_example_of_the_paper() -> None:
    """Lin 2004, section 3.1: against S1, S2 has ROUGE-L 3/4 and S3 2/4."""
    reference = ["police", "killed", "the", "gunman"]
    assert rouge_l(["police", "kill", "the", "gunman"], reference) == pytest.approx(3 / 4)
    assert rouge_l(["the", "gunman", "kill", "police"], reference) == pytest.approx(2 / 4)
    assert rouge_n(["the", "gunman", "kill", "police"], reference, 2) == pytest.approx(1 / 3)


def test_repeated_words_match_as_often_as_in_both() -> None:
    assert rouge_n(["the", "the", "the", "cat"], ["the", "the", "dog"], 1) == pytest.approx(2 * 2 / 7)
    assert common_length(["a", "b", "c", "a", "b"], ["b", "a", "b"]) == 3


def test_nothing_in_common_is_zero() -> None:
    assert rouge_values(["", "a", "a b"], [["b", "", "c d"]]) == {
        "rouge1": [0, 0, 0], "rouge2": [0, 0, 0], "rougeL": [0, 0, 0],
    }  # fmt: skip


def test_words_have_letters_marks_and_digits() -> None:
    assert words_of("The cat's_2nd—“naïve” (café) ₹5") == ["the", "cat", "s", "2nd", "naïve", "café", "5"]
    assert words_of("किताब, पढ़ो।") == ["किताब", "पढ़ो"]


def test_the_best_reference_counts() -> None:
    values = rouge_values(["a b"], [["c d"], ["a b c"], ["b"]])
    assert values["rouge1"] == [pytest.approx(4 / 5)]
    with pytest.raises(DataError, match="1 hypothesis but 2 references"):
        rouge_values(["a"], [["a", "b"]])


def test_the_values_of_rouge_score() -> None:
    scorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer(["rouge1", "rouge2", "rougeL"])
    draw = Random(3)
    hypotheses, first, second = (
        [" ".join(draw.choices(WORDS, k=draw.randint(1, 12))) for _ in range(50)] for _ in "abc"
    )
    values = rouge_values(hypotheses, [first, second])
    for i, hypothesis in enumerate(hypotheses):
        expected = scorer.score_multi([first[i], second[i]], hypothesis)
        for name in values:
            assert values[name][i] == pytest.approx(expected[name].fmeasure), (hypothesis, first[i], second[i])

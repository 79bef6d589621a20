import pytest

from clearformer.errors import DataError
from clearformer.evaluation.metrics.chrf import corpus_chrf


def test_worked_by_hand() -> None:
    """`abc` against `abd`: 2/3 of the letters, 1/2 of the pairs, 0/1 of the triples, alike for precision and recall."""
    assert corpus_chrf(["abc"], [["abd"]]).value == pytest.approx(100 * (2 / 3 + 1 / 2 + 0) / 3)


def test_recall_counts_four_times_as_much_as_precision() -> None:
    """`a` against `aa`: P = 1, R = 1/2, so 5 · P · R / (4 P + R); the orders above one have no hypothesis to count."""
    assert corpus_chrf(["a"], [["aa"]]).value == pytest.approx(100 * 5 * 0.5 / 4.5)


def test_signature_and_word_order() -> None:
    plain, plus = (corpus_chrf(["the cat sat"], [["the cats sat"]], word_order=order) for order in (0, 2))
    assert (plain.name, plus.name) == ("chrF2", "chrF2++")
    assert "nw:0" in plain.signature
    assert "nw:2" in plus.signature
    assert plus.value < plain.value


def test_the_best_reference_counts() -> None:
    assert corpus_chrf(["घर", "ball"], [["पानी", "ball"], ["घर", "bat"]]).value == pytest.approx(100)


def test_length_mismatch() -> None:
    with pytest.raises(DataError, match="1 hypothesis but 2 references in list 1 of 1"):
        corpus_chrf(["a"], [["a", "b"]])

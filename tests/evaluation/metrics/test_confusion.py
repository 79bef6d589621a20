"""Small tables, worked by hand."""

from math import sqrt

import pytest

from clearformer.errors import DataError
from clearformer.evaluation.metrics.confusion import accuracy, confusion, macro_f1, matthews
from clearformer.evaluation.metrics.pearson import pearson

LABELS = [0, 0, 0, 1, 1, 2, 2]
PREDICTIONS = [0, 0, 1, 1, 2, 2, 0]


def test_rows_are_right_and_columns_said() -> None:
    assert confusion(LABELS, PREDICTIONS, 3).tolist() == [[2, 1, 0], [0, 1, 1], [1, 0, 1]]


def test_three_classes_by_hand() -> None:
    """Said 3, 2, 2 times; they are 3, 2, 2; right 2, 1, 1."""
    table = confusion(LABELS, PREDICTIONS, 3)
    assert accuracy(table) == pytest.approx(4 / 7)
    assert macro_f1(table) == pytest.approx((4 / 6 + 2 / 4 + 2 / 4) / 3)
    assert matthews(table) == pytest.approx((7 * 4 - 17) / (49 - 17))


def test_two_classes_by_the_usual_formula() -> None:
    """TP 6, FP 1, FN 2, TN 3: (TP TN − FP FN) / √((TP+FP)(TP+FN)(TN+FP)(TN+FN))."""
    table = confusion([1] * 8 + [0] * 4, [1] * 6 + [0] * 2 + [1] + [0] * 3, 2)
    assert matthews(table) == pytest.approx((6 * 3 - 1 * 2) / sqrt(7 * 8 * 4 * 5))
    assert macro_f1(table) == pytest.approx((12 / 15 + 6 / 9) / 2)


def test_a_class_that_never_occurs_does_not_count_and_one_that_is_only_said_does() -> None:
    assert macro_f1(confusion([0, 1], [0, 1], 5)) == 1.0
    assert macro_f1(confusion([0, 0], [0, 2], 5)) == pytest.approx((2 / 3 + 0) / 2)


def test_always_saying_one_class_correlates_with_nothing() -> None:
    assert matthews(confusion([0, 1, 1], [1, 1, 1], 2)) == 0.0
    assert matthews(confusion([0, 1, 1], [1, 0, 0], 2)) == -1.0


def test_pearson_by_hand() -> None:
    """x − x̄ = −1, 0, 1 and y − ȳ = −2, 1, 1."""
    assert pearson([1, 2, 3], [0, 3, 3]) == pytest.approx(3 / sqrt(2 * 6))
    assert pearson([1, 2, 3], [6, 4, 2]) == pytest.approx(-1)
    assert pearson([1, 2, 3], [5, 5, 5]) == 0.0


def test_there_must_be_something_to_score() -> None:
    for labels, predictions in (([], []), ([1], [])):
        with pytest.raises(DataError, match="cannot compute metrics from"):
            confusion(labels, predictions, 2)
        with pytest.raises(DataError, match="cannot correlate"):
            pearson(labels, predictions)

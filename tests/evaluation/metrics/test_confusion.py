"""Small tables, worked by hand."""

from math import sqrt

import numpy as np
import pytest

from clearformer.errors import DataError
from clearformer.evaluation.metrics.confusion import accuracy, confusion, macro_f1, matthews, per_class
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


def test_precision_recall_and_f1_of_each_class_by_hand() -> None:
    rows = per_class(confusion(LABELS, PREDICTIONS, 3), ["a", "b", "c"])
    assert [row["class"] for row in rows] == ["a", "b", "c"]
    assert [row["precision"] for row in rows] == pytest.approx([2 / 3, 1 / 2, 1 / 2])
    assert [row["recall"] for row in rows] == pytest.approx([2 / 3, 1 / 2, 1 / 2])
    assert [row["f1"] for row in rows] == pytest.approx([2 / 3, 1 / 2, 1 / 2])
    assert [row["support"] for row in rows] == [3, 2, 2]


def test_the_metrics_of_scikit_learn() -> None:
    """Of seven classes, one that never occurs, one that is never predicted, and one that is only predicted."""
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(5)
    labels, predictions = rng.choice([0, 1, 2, 3, 5], 211), rng.choice([0, 1, 2, 4, 5], 211)
    table = confusion(labels.tolist(), predictions.tolist(), 7)
    expected = metrics.precision_recall_fscore_support(labels, predictions, labels=range(7), zero_division=0)
    rows = per_class(table, "abcdefg")
    for values, name in zip(expected, ("precision", "recall", "f1", "support")):
        assert [row[name] for row in rows] == pytest.approx(values.tolist())
    assert macro_f1(table) == pytest.approx(metrics.f1_score(labels, predictions, average="macro", zero_division=0))

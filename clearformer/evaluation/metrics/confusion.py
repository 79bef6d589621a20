"""How classes were mistaken for one another, and the scores that are read off that table.

    table[t, p]    how many examples of class t were said to be of class p

    accuracy   = Σ_k table[k, k] / n
    F1 of k    = 2 table[k, k] / (said k + are k),  macro F1 their mean over the classes that occur on either side
    Matthews   = (n c − Σ_k said_k are_k) / √((n² − Σ said_k²)(n² − Σ are_k²)),  c = Σ_k table[k, k]     Gorodkin 2004

Accuracy flatters whoever always says the most frequent class; macro F1 counts every class alike; Matthews, a
correlation from −1 to 1, is 0 for every guess that does not look at the example.
"""

from collections.abc import Sequence
from math import sqrt

import numpy as np

from clearformer.errors import DataError


def confusion(answers: Sequence[int], said: Sequence[int], n_classes: int) -> np.ndarray:
    """(C, C) int64, rows are what was right, columns what was said."""
    if len(answers) != len(said) or len(answers) == 0:
        raise DataError(
            f"nothing to score: {len(answers)} answers, {len(said)} predictions", "give one prediction for each answer"
        )
    pairs = np.asarray(answers, "int64") * n_classes + np.asarray(said, "int64")
    return np.bincount(pairs, minlength=n_classes**2).reshape(n_classes, n_classes)


def accuracy(table: np.ndarray) -> float:
    return float(table.trace() / table.sum())


def macro_f1(table: np.ndarray) -> float:
    seen = table.sum(0) + table.sum(1)  # said k + are k
    return float((2 * table.diagonal()[seen > 0] / seen[seen > 0]).mean())


def matthews(table: np.ndarray) -> float:
    """0 where it is not defined: all examples are of one class, or said to be."""
    n, right = int(table.sum()), int(table.trace())
    said, are = table.sum(0).tolist(), table.sum(1).tolist()
    spread = (n**2 - sum(k * k for k in said)) * (n**2 - sum(k * k for k in are))
    return (n * right - sum(a * b for a, b in zip(said, are))) / sqrt(spread) if spread else 0.0

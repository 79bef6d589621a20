"""The confusion matrix, and the metrics computed from it.

    table[t, p]    number of examples of class t that were predicted as class p
    t_k, p_k       number of examples of class k, and of predictions of class k: the sums of row k and of column k

    accuracy   = Σ_k table[k, k] / n
    precision  = table[k, k] / p_k          of class k: the fraction of its predictions that are right; 0 if p_k = 0
    recall     = table[k, k] / t_k          of class k: the fraction of its examples that are recognised; 0 if t_k = 0
    F1         = 2 table[k, k] / (p_k + t_k) of class k;  macro F1 is the mean over the classes with p_k + t_k > 0
    Matthews   = (n c − Σ_k p_k t_k) / √((n² − Σ p_k²)(n² − Σ t_k²)),  c = Σ_k table[k, k]     Gorodkin 2004

Accuracy can be high even if a model always predicts the most frequent class. Macro F1 gives all classes equal weight.
Matthews is a correlation from −1 to 1, and 0 for predictions that do not depend on the example.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np

from clearformer.errors import DataError
from clearformer.wording import count


def confusion(labels: Sequence[int], predictions: Sequence[int], n_classes: int) -> np.ndarray:
    """Return the confusion matrix, (C, C) int64: rows are labels, columns are predictions."""
    if len(labels) != len(predictions) or len(labels) == 0:
        raise DataError(
            f"cannot compute metrics from {count(len(labels), 'label')} and {count(len(predictions), 'prediction')}",
            "give one prediction for each label",
        )
    pairs = np.asarray(labels, "int64") * n_classes + np.asarray(predictions, "int64")
    return np.bincount(pairs, minlength=n_classes**2).reshape(n_classes, n_classes)


def accuracy(table: np.ndarray) -> float:
    return float(table.trace() / table.sum())


def macro_f1(table: np.ndarray) -> float:
    totals = table.sum(0) + table.sum(1)  # p_k + t_k
    return float((2 * table.diagonal()[totals > 0] / totals[totals > 0]).mean())


def per_class(table: np.ndarray, classes: Sequence[str]) -> list[dict[str, Any]]:
    """Return class, precision, recall, f1 and support (the number of its examples) of each class, in their order."""
    right, predicted, true = table.diagonal(), table.sum(0), table.sum(1)
    ratios = {
        "precision": right / np.maximum(predicted, 1),
        "recall": right / np.maximum(true, 1),
        "f1": 2 * right / np.maximum(predicted + true, 1),
    }
    return [
        {"class": name, **{key: float(values[k]) for key, values in ratios.items()}, "support": int(true[k])}
        for k, name in enumerate(classes)
    ]


def matthews(table: np.ndarray) -> float:
    """Return the Matthews correlation, or 0 if it is undefined: all labels, or all predictions, are of one class."""
    n, right = int(table.sum()), int(table.trace())
    predicted, true = table.sum(0).tolist(), table.sum(1).tolist()
    spread = (n**2 - sum(k * k for k in predicted)) * (n**2 - sum(k * k for k in true))
    return (n * right - sum(a * b for a, b in zip(predicted, true))) / sqrt(spread) if spread else 0.0

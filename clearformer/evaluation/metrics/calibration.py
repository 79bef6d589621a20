"""Calibration: whether predictions with a probability of 0.8 are right in 80 % of cases, and how to make them so.

    ECE  = Σ_b |B_b| / n · |accuracy(B_b) − confidence(B_b)|          expected calibration error, Naeini et al. 2015
    p    = softmax(z / T)                                             temperature scaling, Guo et al. 2017
    T*   = argmin_T − Σ_i log softmax(z_i / T)[y_i]                   on validation data

The confidence of an example is the probability of the predicted class, and B_b are the examples with confidence in
((b − 1) / 15, b / 15]. T > 1 lowers all confidences, T < 1 raises them. One positive number for all classes changes no
order: the predicted class, and so the accuracy, stay the same.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.errors import DataError

BINS = 15


class Bin(NamedTuple):
    """The examples whose confidence is in (low, high]: their number, mean confidence and accuracy."""

    low: float
    high: float
    examples: int
    confidence: float
    accuracy: float


def reliability(logits: Tensor, labels: Tensor, temperature: float = 1.0, n_bins: int = BINS) -> list[Bin]:
    """Divide examples by confidence into `n_bins` bins of equal width; empty bins are left out.

    logits (N, C), labels (N,)
    """
    confidence = (logits.double() / temperature).softmax(-1).amax(-1).numpy()
    is_right = (logits.argmax(-1) == labels).double().numpy()
    index = np.clip(np.ceil(confidence * n_bins).astype(int) - 1, 0, n_bins - 1)
    rows = ((b, index == b) for b in range(n_bins))
    return [
        Bin(b / n_bins, (b + 1) / n_bins, int(some.sum()), float(confidence[some].mean()), float(is_right[some].mean()))
        for b, some in rows
        if some.any()
    ]


def calibration_error(bins: list[Bin]) -> float:
    """Return the expected calibration error, from 0 to 1."""
    n = sum(row.examples for row in bins)
    return sum(row.examples / n * abs(row.accuracy - row.confidence) for row in bins)


def mean_loss(logits: Tensor, labels: Tensor, temperature: float = 1.0) -> float:
    """Return the mean negative log-likelihood of the labels in nats."""
    return float(F.cross_entropy(logits.double() / temperature, labels))


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """Return T*, found by L-BFGS. logits (N, C), labels (N,).

    The loss is convex in 1 / T. It has no minimum if every label has the largest logit, because T → 0 lowers it
    further, nor if labels have no larger logits than other classes on average, where T → ∞ does.
    """
    logits, label_logits = logits.double(), logits.double().gather(1, labels[:, None])[:, 0]
    if bool((label_logits == logits.max(1).values).all()):
        raise DataError(
            "no temperature fits: every validation example is predicted correctly",
            "calibrate on more validation data, with some errors",
        )
    if float((label_logits - logits.mean(1)).sum()) <= 0:
        raise DataError(
            "no temperature fits: on the validation data, the model is no better than chance", "train the model longer"
        )
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)  # 1 / T
    optimizer = torch.optim.LBFGS(
        [scale], max_iter=100, tolerance_grad=1e-10, tolerance_change=1e-12, line_search_fn="strong_wolfe"
    )

    @torch.enable_grad()
    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(logits * scale, labels)
        loss.backward()
        return loss

    optimizer.step(closure)
    return 1 / float(scale.detach())


def calibration_metrics(logits: Tensor, labels: Tensor, temperature: float = 1.0) -> dict[str, Any]:
    """Return ece and reliability (its bins); with a temperature, also `temperature` and the ECE without it."""
    bins = reliability(logits, labels, temperature)
    metrics: dict[str, Any] = {"ece": calibration_error(bins)}
    if temperature != 1:
        metrics |= {
            "temperature": temperature,
            "ece_uncalibrated": calibration_error(reliability(logits, labels)),
        }
    return metrics | {"reliability": [row._asdict() for row in bins]}

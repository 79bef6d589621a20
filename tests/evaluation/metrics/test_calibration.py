"""Calibration by hand, against computations of another kind, and on logits whose right temperature is known."""

from math import log

import numpy as np
import pytest
import torch
from torch import Tensor

from clearformer.errors import DataError
from clearformer.evaluation.metrics.calibration import (
    calibration_error,
    calibration_metrics,
    fit_temperature,
    mean_loss,
    reliability,
)

N, C = 2003, 5


def drawn(temperature: float) -> tuple[Tensor, Tensor]:
    """Labels drawn from softmax(logits), and the logits multiplied by `temperature`, which is then the right one."""
    torch.manual_seed(7)
    logits = 2 * torch.randn(N, C, dtype=torch.float64)
    return logits * temperature, logits.softmax(-1).multinomial(1)[:, 0]


def test_two_bins_by_hand() -> None:
    """Confidences 0.8, 0.8, 0.8 (two of three right) and 0.6 (wrong); the bins are (0, 0.7] and (0.7, 1]."""
    logits = torch.tensor([[0.0, log(4)], [0.0, log(4)], [0.0, log(4)], [log(1.5), 0.0]])
    bins = reliability(logits, torch.tensor([1, 1, 0, 1]))
    assert [(row.examples, row.accuracy) for row in bins] == [(1, 0.0), (3, pytest.approx(2 / 3))]
    assert [row.confidence for row in bins] == pytest.approx([0.6, 0.8])
    assert calibration_error(bins) == pytest.approx(0.6 / 4 + 3 / 4 * (0.8 - 2 / 3))


def test_the_error_example_by_example() -> None:
    """An independent computation, with a loop over examples and exact edges of fifteen bins."""
    logits, labels = drawn(1.7)
    probabilities = logits.softmax(-1).numpy()
    sums = np.zeros((15, 3))
    for row, label in zip(probabilities, labels.tolist()):
        b = next(b for b in range(15) if row.max() <= (b + 1) / 15)
        sums[b] += [1, row.max(), row.argmax() == label]
    expected = sum(abs(right - confident) for n, confident, right in sums if n) / N
    assert calibration_error(reliability(logits, labels)) == pytest.approx(expected)


def test_certain_predictions_are_in_the_last_bin() -> None:
    (row,) = reliability(torch.tensor([[0.0, 900.0]]), torch.tensor([1]))
    assert (row.high, row.confidence, row.accuracy) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_the_right_temperature_is_recovered(temperature: float) -> None:
    logits, labels = drawn(temperature)
    fitted = fit_temperature(logits, labels)
    assert fitted == pytest.approx(temperature, rel=0.06)  # the standard error of 2,003 examples is about 2 %
    assert calibration_error(reliability(logits, labels, fitted)) < 0.03


def test_the_temperature_is_the_minimum_of_the_loss() -> None:
    """As scipy finds it, by another method."""
    optimize = pytest.importorskip("scipy.optimize")
    logits, labels = drawn(2.3)
    best = optimize.minimize_scalar(
        lambda t: mean_loss(logits, labels, t), bounds=(0.05, 20), method="bounded", options={"xatol": 1e-9}
    )
    assert fit_temperature(logits, labels) == pytest.approx(best.x, rel=1e-5)


def test_a_temperature_of_float32_logits_without_gradients() -> None:
    logits, labels = drawn(2.0)
    with torch.no_grad():
        assert fit_temperature(logits.float(), labels) == pytest.approx(fit_temperature(logits, labels), rel=1e-4)


def test_no_temperature_fits_where_the_loss_has_no_minimum() -> None:
    labels = torch.tensor([0, 1, 2])
    with pytest.raises(DataError, match="every validation example is predicted correctly"):
        fit_temperature(torch.eye(3), labels)
    with pytest.raises(DataError, match="no better than chance"):
        fit_temperature(-torch.eye(3), labels)


def test_what_is_reported() -> None:
    logits, labels = drawn(2.0)
    plain, calibrated = calibration_metrics(logits, labels), calibration_metrics(logits, labels, 2.0)
    assert plain.keys() == {"ece", "reliability"}
    assert calibrated["ece_uncalibrated"] == plain["ece"] > 0.05 > calibrated["ece"]
    assert sum(row["examples"] for row in calibrated["reliability"]) == N

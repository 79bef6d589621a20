"""The figure of a comparison: its scale follows the scores."""

from pathlib import Path

import pytest

from clearformer.plots import plot_comparison
from clearformer.plots.comparison import is_wide


@pytest.mark.parametrize(
    ("curves", "expected"),
    [
        ([[5.0, 2.0], [7.0, 0.5]], False),
        ([[5.0, 2.0], [900.0, 350.0]], True),
        ([[0.0, 0.1], [40.0, 90.0]], False),
        ([], False),
    ],
)
def test_scores_are_wide_if_they_differ_by_a_factor_of_a_hundred(curves: list[list[float]], expected: bool) -> None:
    assert is_wide(curves) == expected


@pytest.mark.parametrize(("worst", "has_powers"), [(8.0, False), (800.0, True)])
def test_losses_of_a_training_that_diverges_have_a_logarithmic_scale(
    worst: float, has_powers: bool, tmp_path: Path
) -> None:
    runs = {
        name: [{"curve": {"step": [10, 20], "seconds": [1.0, 2.0], "score": [loss, loss / 2]}, "by_length": []}]
        for name, loss in (("calm", 3.0), ("wild", worst))
    }
    results = {"title": "two", "metric": "loss", "goal": None, "runs": runs}
    svg = plot_comparison(results, tmp_path / "figure.svg").read_text(encoding="utf-8")
    assert ("<!-- 100 -->" in svg) == has_powers
    assert "mathdefault" not in svg

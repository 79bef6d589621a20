"""Plot direct logit attribution: one row per part of the model, one column per output."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearformer.plots.grid import plot_grid


def plot_logit_attribution(data: Mapping[str, Any], path: Path | str) -> Path:
    """Plot the values of `lens.logit_attribution`. Each column adds up to the logit of its output."""
    rows = [list(row) for row in zip(*data["contributions"])]
    return plot_grid(
        rows,
        [[f"{value:.1f}" for value in row] for row in rows],
        data["components"],
        data["outputs"],
        path,
        data["title"],
        "contribution of each part to the logit of each output; blue for, red against",
        is_signed=True,
    )

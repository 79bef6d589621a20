"""Plot attributions: one row per output, one column per input token, blue for and red against the output."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from clearformer.plots.grid import plot_grid

METHODS = {"integrated": "integrated gradients", "gradient_input": "gradient × input"}


def attribution_figures(data: Mapping[str, Any]) -> dict[str, Callable[[Path], Path]]:
    """Return one figure for each method, from the values of `lens.attribution`."""

    def draw(key: str) -> Callable[[Path], Path]:
        return lambda path: plot_attribution(data, path, key)

    return {name: draw(key) for key, name in METHODS.items()}


def plot_attribution(data: Mapping[str, Any], path: Path | str, method: str = "integrated") -> Path:
    """Plot the attributions of one method, `integrated` or `gradient_input`."""
    values = data[method]
    return plot_grid(
        values,
        [[f"{value:.1f}" if value else "" for value in row] for row in values],
        data["outputs"],
        data["inputs"],
        path,
        f"{data['title']}: {METHODS[method]}",
        "contribution of each input token to the logit of each output; blue for, red against",
        is_signed=True,
    )

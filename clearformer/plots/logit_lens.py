"""Plot the logit lens: one row per layer, one column per position, the most probable token and its probability."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearformer.plots.grid import plot_grid


def plot_logit_lens(data: Mapping[str, Any], path: Path | str) -> Path:
    """Plot the values of `lens.logit_lens`, with the last layer on top. Frames: the prediction is settled."""
    n = len(data["layers"])
    layers = range(n - 1, -1, -1)
    return plot_grid(
        [[best[0] for best in data["probabilities"][layer]] for layer in layers],
        [[best[0] for best in data["tokens"][layer]] for layer in layers],
        [data["layers"][layer] for layer in layers],
        data["positions"],
        path,
        data["title"],
        "most probable token, shaded by its probability; framed: already the prediction",
        [[layer >= settled for settled in data["settled"]] for layer in layers],
    )

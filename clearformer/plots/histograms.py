"""Plot histograms: one curve for each layer, or ridges over the steps of a training."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes

from clearformer.plots.style import BLUE, MUTED, saved_figure

RIDGE = 1.6  # height of a ridge, in distances between ridges
MOST = 40  # ridges of a figure


def histogram_figures(data: Mapping[str, Any]) -> dict[str, Callable[[Path], Path]]:
    """Return the figures of `clearformer.lens.histograms`: by layer on a text, or by step for each layer."""
    if "steps" in data:
        return {layer["name"]: partial(plot_steps, layer, data["steps"], data["title"]) for layer in data["layers"]}
    return {part: partial(plot_layers, data[part], data["title"], part) for part in PARTS if data[part]}


PARTS = ("activations", "weights")
ACROSS = {
    "weights": "weight",
    "gradients": "log10 of the gradient, before clipping",
    "activations": "output of the layer",
}


def plot_layers(layers: Sequence[Mapping[str, Any]], title: str, part: str, path: Path | str) -> Path:
    """Plot one ridge for each layer, from the first at the top to the last."""
    with saved_figure(path, 7, 1.6 + 0.36 * len(layers)) as figure:
        figure.suptitle(f"{title}: {part}", fontsize=11)
        ax = figure.subplots()
        draw_ridges(ax, layers, [layer["name"] for layer in layers], "value")
    return Path(path)


def plot_steps(layer: Mapping[str, Any], steps: Sequence[int], title: str, path: Path | str) -> Path:
    """Plot the weights, gradients and activations of a layer: one ridge for each validation, the first at the top."""
    chosen = sorted({round(i) for i in np.linspace(0, len(steps) - 1, min(MOST, len(steps)))})
    parts = [part for part in ACROSS if any(layer[part])]
    with saved_figure(path, 5.5 * max(1, len(parts)), 1.8 + 0.3 * len(chosen)) as figure:
        figure.suptitle(f"{title}, {layer['name']}", fontsize=11)
        for ax, part in zip(figure.subplots(1, max(1, len(parts)), squeeze=False)[0], parts):
            rows = [(layer[part][i], f"step {steps[i]:,}") for i in chosen if layer[part][i] is not None]
            if rows:
                draw_ridges(ax, [one for one, _ in rows], [name for _, name in rows], ACROSS[part])
            ax.set_title(part)
    return Path(path)


def draw_ridges(ax: Axes, rows: Sequence[Mapping[str, Any]], names: Sequence[str], across: str) -> None:
    """Draw histograms above each other. The heights of each are relative to its fullest bin."""
    shades = matplotlib.colormaps["viridis"](np.linspace(0.1, 0.85, len(rows))) if len(rows) > 1 else [BLUE]
    for i, (row, shade) in enumerate(zip(rows, shades)):
        counts = np.array(row["counts"], dtype=float)
        edges = np.linspace(row["low"], row["high"], len(counts) + 1)
        heights = -i + RIDGE * np.r_[counts, counts[-1]] / max(1.0, counts.max())
        style: dict[str, Any] = {"step": "post", "zorder": i, "linewidth": 0.8}
        ax.fill_between(edges, -i, heights, facecolor=shade, edgecolor="white", alpha=0.85, **style)
        if outside := row.get("outside", 0):
            note = f" {outside:,} outside, from {row['min']:.3g} to {row['max']:.3g}"
            place: Any = ax.get_yaxis_transform()  # at the right edge
            ax.text(1, -i, note, transform=place, fontsize=7, color=MUTED, va="bottom")
    ax.set_yticks([-i for i in range(len(rows))], names)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel(across)
    ax.set_ylim(1 - len(rows) - 0.2, RIDGE + 0.1)
    ax.spines["left"].set_visible(False)

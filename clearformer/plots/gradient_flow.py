"""Plot gradient norms by layer, and by layer and kind of weight."""

from collections.abc import Callable, Mapping
from functools import partial
from math import log10
from pathlib import Path
from typing import Any

import numpy as np

from clearformer.plots.lines import by_logarithm
from clearformer.plots.style import BLUE, saved_figure


def gradient_figures(data: Mapping[str, Any]) -> dict[str, Callable[[Path], Path]]:
    return {"by layer": partial(plot_layers, data), "by kind of weight": partial(plot_kinds, data)}


def plot_layers(data: Mapping[str, Any], path: Path | str) -> Path:
    """Plot the gradient norm of each layer of `clearformer.lens.gradient_flow`, from the input to the output."""
    layers = data["layers"]
    with saved_figure(path, max(5.5, 0.4 * len(layers) + 1.5), 4.4) as figure:
        figure.suptitle(f"{data['title']}, loss {data['loss']:.3g} ({data['loss_of']})", fontsize=11)
        ax = figure.subplots()
        ax.bar(range(len(layers)), list(layers.values()), color=BLUE, width=0.7)
        ax.set_xticks(range(len(layers)), list(layers), rotation=60, ha="right", rotation_mode="anchor")
        ax.set_ylabel("gradient norm")
        if any(layers.values()):
            by_logarithm(ax)
        ax.grid(axis="y")
    return Path(path)


def plot_kinds(data: Mapping[str, Any], path: Path | str) -> Path:
    """Plot the logarithm of the gradient norm of each weight; blank where a layer has no such weight."""
    layers = list(data["layers"])
    kinds = list(dict.fromkeys(row["kind"] for row in data["weights"]))
    grid = np.full((len(kinds), len(layers)), np.nan)
    for row in data["weights"]:
        if row["norm"] > 0:
            grid[kinds.index(row["kind"]), layers.index(row["layer"])] = log10(row["norm"])
    with saved_figure(path, max(6, 0.3 * len(layers) + 3.5), 0.22 * len(kinds) + 2.6) as figure:
        figure.suptitle(data["title"], fontsize=11)
        ax = figure.subplots()
        image = ax.imshow(np.ma.masked_invalid(grid), cmap="viridis", aspect="auto", interpolation="nearest")
        bar = figure.colorbar(image, ax=ax, label="log10 of the gradient norm")
        bar.outline.set_visible(False)
        ax.set_xticks(range(len(layers)), layers, rotation=60, ha="right", rotation_mode="anchor")
        ax.set_yticks(range(len(kinds)), kinds)
    return Path(path)

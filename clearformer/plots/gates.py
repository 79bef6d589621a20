"""Plot the gates and states of a recurrent layer: means by token, and heat maps of single units."""

from collections.abc import Callable, Mapping
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from clearformer.plots.lettering import lettering, make_visible
from clearformer.plots.lines import draw_lines
from clearformer.plots.style import saved_figure

STATES = {"h": "state h", "m": "memory m"}


def gate_figures(data: Mapping[str, Any]) -> dict[str, Callable[[Path], Path]]:
    """Return one figure for each layer of `clearformer.lens.gates.gates`."""
    return {layer["name"]: partial(plot_gates, layer, f"{data['title']}, {layer['name']}") for layer in data["layers"]}


def plot_gates(layer: Mapping[str, Any], title: str, path: Path | str) -> Path:
    """Plot one layer: lines for the means of the gates over units, then a heat map for each gate and state."""
    tokens, values = layer["tokens"], layer["values"]
    n_maps, T = len(values), len(tokens)
    width = min(16.0, max(6.0, 0.32 * T + 2))
    with saved_figure(path, width, 2.4 + 2.0 * n_maps) as figure:
        figure.suptitle(title, fontsize=11)
        top, *maps = figure.subplots(1 + n_maps, 1, height_ratios=[1.2] + [1] * n_maps)
        lines = {name: (range(T), mean) for name, mean in layer["means"].items() if name not in STATES}
        draw_lines(top, lines, "", f"mean of {layer['n_units']} units")
        label_tokens(top, tokens, width)
        top.set_xlim(-0.5, T - 0.5)
        top.legend(ncols=4, loc="upper right", bbox_to_anchor=(1, 1.25))
        for ax, (name, rows) in zip(maps, values.items()):
            draw_units(ax, np.array(rows), layer["units"])
            ax.set_title(STATES.get(name, name))
            label_tokens(ax, tokens, width)
    return Path(path)


def draw_units(ax: Axes, rows: np.ndarray, units: list[int]) -> None:
    """Draw values (units, T): gates, from 0 to 1, in blue; signed values in red and blue around 0."""
    if rows.min() >= 0 and rows.max() <= 1:
        scale: dict[str, Any] = {"cmap": "Blues", "vmin": 0, "vmax": 1}
    else:
        most = float(np.abs(rows).max())
        scale = {"cmap": "RdBu", "vmin": -most, "vmax": most}
    image = ax.imshow(rows, aspect="auto", interpolation="nearest", **scale)
    ax.figure.colorbar(image, ax=ax, pad=0.01).outline.set_visible(False)
    stride = ceil(len(units) / 8)
    ax.set_yticks(range(0, len(units), stride), [str(unit) for unit in units[::stride]])
    ax.set_ylabel("unit")


def label_tokens(ax: Axes, tokens: list[str], width: float) -> None:
    """Label the horizontal axis with tokens, as many as there is space for."""
    families, words = lettering([make_visible(token) for token in tokens])
    stride = ceil(len(tokens) / (width / 0.2))
    ax.set_xticks(
        range(0, len(tokens), stride), words[::stride], rotation=45, ha="right", rotation_mode="anchor",
        fontfamily=families,
    )  # fmt: skip

"""Plot grids of values: layers × heads, layers × positions, positions × positions."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from clearformer.plots.lettering import lettering, make_visible
from clearformer.plots.style import RULE, saved_figure

Values = Mapping[str, Any]


def grid_figures(values: Values) -> dict[str, Callable[[Path], Path]]:
    """The figure of a view whose values have `panels`, each with a name, rows, columns and values."""
    return {values["title"]: lambda path: plot_grids(values["panels"], path, values["title"], values.get("label", ""))}


def plot_grids(panels: Sequence[Values], path: Path | str, title: str = "", label: str = "") -> Path:
    """Plot grids below each other, with a common colour scale; `label` names the values.

    The scale starts at 0. If there are negative values, it is symmetric: blue above 0, red below.
    """
    grids = [np.asarray(panel["values"], dtype=float) for panel in panels]
    largest = max(float(np.nanmax(np.abs(grid))) for grid in grids) or 1.0
    is_signed = min(float(np.nanmin(grid)) for grid in grids) < -0.02 * largest
    colours: dict[str, Any] = {"cmap": "RdBu" if is_signed else "Blues", "vmin": -largest if is_signed else 0}
    names = [make_visible(str(name)) for panel in panels for name in (*panel["rows"], *panel["columns"])]
    families, words = lettering(names)
    spelled = dict(zip(names, words))
    widest = max(grid.shape[1] for grid in grids)
    cell = min(0.36, max(0.08, 6 / widest))  # the side of a cell, in inches
    margin = 0.08 * max(map(len, words))
    width = max(cell * widest + margin + 1.3, 4)
    title_families, [heading] = lettering([title])
    lines = wrap(heading, int(width / 0.09))  # inches per character
    heights = [cell * len(grid) + 0.4 + margin for grid in grids]

    with saved_figure(path, width, sum(heights) + 0.2 * len(lines) + 0.2) as figure:
        axes = figure.subplots(len(grids), 1, squeeze=False, height_ratios=heights)[:, 0]
        for ax, panel, grid in zip(axes, panels, grids):
            image = ax.imshow(grid, vmax=largest, interpolation="nearest", aspect="equal", **colours)
            ax.set_title(panel["name"])
            ax.spines[:].set(visible=True, color=RULE)
            ax.tick_params(length=0)
            stride = ceil(0.17 / cell)  # a line of text needs 0.17 inches
            rows, columns = ([spelled[make_visible(str(name))] for name in panel[axis]] for axis in ("rows", "columns"))
            ax.set_yticks(range(0, len(rows), stride), rows[::stride], fontfamily=families)
            turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if max(map(len, columns)) > 2 else {}
            ax.set_xticks(range(0, len(columns), stride), columns[::stride], fontfamily=families, **turned)
            ax.set(xlabel=panel.get("across", ""), ylabel=panel.get("down", ""))
        bar = figure.colorbar(image, ax=list(axes), shrink=min(1, 2.5 / sum(heights)), anchor=(0, 1), aspect=24)
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=0)
        bar.set_label(label)
        figure.suptitle("\n".join(lines), fontfamily=title_families, fontsize=11)
    return Path(path)

"""Plot a walk through a model: one panel per step, tokens by features or by tokens, with rounded numbers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from clearformer.plots.grid import draw_cells
from clearformer.plots.lettering import lettering, make_visible
from clearformer.plots.style import saved_figure

MOST_ROWS, MOST_COLUMNS = 16, 10  # of a panel; the values have all of them


def plot_walk(data: Mapping[str, Any], path: Path | str) -> Path:
    """Plot the values of `lens.walk`. Blue is positive, red negative; masked scores are blank."""
    steps = data["steps"]
    heights = [0.24 * min(len(step["rows"]), MOST_ROWS) + 0.75 for step in steps]
    with saved_figure(path, 8.5, sum(heights) + 0.5) as figure:
        panels = figure.subplots(len(steps), 1, squeeze=False, height_ratios=heights)[:, 0]
        for number, (ax, step) in enumerate(zip(panels, steps), 1):
            rows, columns = step["rows"][:MOST_ROWS], step["columns"][:MOST_COLUMNS]
            values = [row[: len(columns)] for row in step["values"][: len(rows)]]
            texts = [["" if value is None else short(value) for value in row] for row in values]
            numbers = np.array([[np.nan if value is None else value for value in row] for row in values])
            families, words = lettering([make_visible(word) for word in [*rows, *columns]])
            draw_cells(ax, numbers, texts, families, is_signed=True)
            ax.set_yticks(range(len(rows)), words[: len(rows)], fontfamily=families)
            ax.set_xticks(range(len(columns)), words[len(rows) :], fontfamily=families)
            size = f"{len(step['rows'])} × {len(step['columns'])}"
            title_families, [title] = lettering([f"{number}. {step['name']}:  {step['equation']}   ({size})"])
            ax.set_title(title, fontfamily=title_families)
        title_families, [title] = lettering([data["title"]])
        figure.suptitle(title, fontfamily=title_families, fontsize=11)
    return Path(path)


def short(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.2f}"

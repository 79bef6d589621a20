"""Plot a grid of cells with a text in each, shaded by a number: rows and columns are tokens, layers or features."""

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike

from clearformer.plots.lettering import lettering, make_visible
from clearformer.plots.style import INK, MUTED, ORANGE, RULE, saved_figure

WIDEST = 64  # columns of a figure; the values have all of them
LETTER = 0.075  # inches


def plot_grid(
    shades: ArrayLike,
    texts: Sequence[Sequence[str]],
    rows: Sequence[str],
    columns: Sequence[str],
    path: Path | str,
    title: str = "",
    caption: str = "",
    marked: ArrayLike | None = None,
    is_signed: bool = False,
) -> Path:
    """Plot cells (R, C). Probabilities are shaded from 0 to 1; signed numbers in two colours, scaled to the largest.

    `marked` cells have a frame. Of more than 64 columns, only the last 64 are drawn.
    """
    values = np.asarray(shades, dtype=float)[:, -WIDEST:]
    texts, columns = [list(row)[-WIDEST:] for row in texts], list(columns)[-WIDEST:]
    frames = None if marked is None else np.asarray(marked, dtype=bool)[:, -WIDEST:]
    R, C = values.shape
    words = [make_visible(word) for word in [*rows, *columns, *(text for row in texts for text in row)]]
    families, words = lettering(words)
    cells = [words[R + C + r * C : R + C + (r + 1) * C] for r in range(R)]
    cell = min(1.4, LETTER * max([4, *(len(text) for row in cells for text in row)]) + 0.1)
    margin = LETTER * max(len(word) for word in words[:R])
    width = max(C * cell + margin + 0.5, 3.5)
    lines = wrap(title, ceil(width / 0.09))
    height = 0.26 * R + LETTER * max(len(word) for word in words[R : R + C]) + 0.2 * len(lines) + 0.9
    with saved_figure(path, width, height) as figure:
        ax = figure.subplots()
        draw_cells(ax, values, cells, families, is_signed, frames)
        ax.set_xticks(range(C), words[R : R + C], rotation=45, ha="left", rotation_mode="anchor", fontfamily=families)
        ax.set_yticks(range(R), words[:R], fontfamily=families)
        ax.xaxis.tick_top()
        ax.set_xlabel("\n".join(wrap(caption, ceil(width / 0.075))))
        title_families, lines = lettering(lines)
        figure.suptitle("\n".join(lines), fontfamily=title_families, fontsize=11)
    return Path(path)


def draw_cells(
    ax: Axes,
    values: Any,
    texts: Sequence[Sequence[str]],
    families: Sequence[str],
    is_signed: bool = False,
    frames: Any = None,
) -> None:
    """Draw shaded cells (R, C) with their texts. Not-a-number leaves a cell white, its text grey."""
    most = float(np.nanmax(np.abs(values), initial=1e-12)) if is_signed else 1.0
    ax.imshow(
        values,
        cmap="RdBu" if is_signed else "Blues",
        vmin=-most if is_signed else 0,
        vmax=most,
        aspect="auto",
        alpha=0.75,
    )
    for r, row in enumerate(texts):
        for c, text in enumerate(row):
            value = values[r][c]
            ink = MUTED if np.isnan(value) else "white" if abs(value) > 0.7 * most else INK
            ax.text(c, r, text, ha="center", va="center", fontsize=7, color=ink, fontfamily=families, clip_on=True)
            if frames is not None and frames[r][c]:
                ax.add_patch(Rectangle((c - 0.47, r - 0.45), 0.94, 0.9, fill=False, edgecolor=ORANGE, linewidth=1.4))
    ax.tick_params(length=0)
    ax.spines[:].set(visible=True, color=RULE)

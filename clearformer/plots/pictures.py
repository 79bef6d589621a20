"""Pictures on a page: side by side, under a heat, and as small tiles."""

from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from clearformer.plots.lettering import lettering
from clearformer.plots.style import picture


def draw_picture(ax: Axes, pixels: Any, caption: str = "") -> None:
    """Greys (Y, X), from their lowest to their highest, or colours (Y, X, 3), 0 … 255; framed, for paper is white."""
    ax.imshow(np.asarray(pixels), cmap="gray", interpolation="nearest")
    families, [words] = lettering([caption])
    ax.set_title(words, fontfamily=families, fontsize=8)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set(visible=True, color="0.8", linewidth=0.5)


def plot_heat(numbers: Mapping[str, Any], path: Path | str) -> Path:
    """Pictures above, and below them the same under `heat`, of fewer places, each by its own scale."""
    n = len(numbers["pictures"])
    with picture(path, 1.7 * n + 0.4, 4.2) as figure:
        figure.suptitle(numbers["title"], fontsize=10)
        axes = figure.subplots(2, n, squeeze=False)
        for i, (pixels, heat) in enumerate(zip(numbers["pictures"], numbers["heat"])):
            Y, X = np.asarray(pixels).shape[:2]
            draw_picture(axes[0, i], pixels, numbers["captions"][i])
            draw_picture(axes[1, i], pixels)
            edges = (-0.5, X - 0.5, Y - 0.5, -0.5)
            axes[1, i].imshow(heat, cmap="inferno", alpha=0.6, extent=edges, interpolation="bilinear")
    return Path(path)


def plot_tiles(numbers: Mapping[str, Any], path: Path | str) -> Path:
    """Filters, or maps, eight in a row."""
    tiles, captions = numbers["tiles"], numbers["captions"]
    rows = ceil(len(tiles) / 8)
    with picture(path, 7, 0.95 * rows + 0.6) as figure:
        figure.suptitle(numbers["title"], fontsize=10)
        axes = list(figure.subplots(rows, 8, squeeze=False).flat)
        for ax, tile, caption in zip(axes, tiles, captions):
            draw_picture(ax, tile, caption)
        for blank in axes[len(tiles) :]:
            blank.remove()
    return Path(path)

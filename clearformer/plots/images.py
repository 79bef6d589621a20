"""Plot images with heat maps, or as small tiles."""

from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from clearformer.plots.lettering import lettering
from clearformer.plots.style import saved_figure


def draw_image(ax: Axes, pixels: Any, caption: str = "") -> None:
    """Draw a framed image: grey (Y, X), scaled from its lowest to its highest value, or colour (Y, X, 3) in 0 … 255."""
    ax.imshow(np.asarray(pixels), cmap="gray", interpolation="nearest")
    families, [words] = lettering([caption])
    ax.set_title(words, fontfamily=families, fontsize=8)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set(visible=True, color="0.8", linewidth=0.5)


def plot_heat(data: Mapping[str, Any], path: Path | str) -> Path:
    """Plot images, and below them the same images overlaid with their heat maps, each scaled separately."""
    n = len(data["images"])
    with saved_figure(path, 1.7 * n + 0.4, 4.2) as figure:
        figure.suptitle(data["title"], fontsize=10)
        axes = figure.subplots(2, n, squeeze=False)
        for i, (pixels, heat) in enumerate(zip(data["images"], data["heat"])):
            Y, X = np.asarray(pixels).shape[:2]
            draw_image(axes[0, i], pixels, data["captions"][i])
            draw_image(axes[1, i], pixels)
            edges = (-0.5, X - 0.5, Y - 0.5, -0.5)
            axes[1, i].imshow(heat, cmap="inferno", alpha=0.6, extent=edges, interpolation="bilinear")
    return Path(path)


def plot_tiles(data: Mapping[str, Any], path: Path | str) -> Path:
    """Plot filters or feature maps as tiles, eight per row."""
    tiles, captions = data["tiles"], data["captions"]
    rows = ceil(len(tiles) / 8)
    with saved_figure(path, 7, 0.95 * rows + 0.6) as figure:
        figure.suptitle(data["title"], fontsize=10)
        axes = list(figure.subplots(rows, 8, squeeze=False).flat)
        for ax, tile, caption in zip(axes, tiles, captions):
            draw_image(ax, tile, caption)
        for blank in axes[len(tiles) :]:
            blank.remove()
    return Path(path)

"""The race of the optimisers: their paths over contours, the data of the network, and below each its loss."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from clearformer.plots.lines import by_logarithm, draw_lines
from clearformer.plots.style import BLUE, COLOURS, INK, MUTED, ORANGE, picture

FAINT = "#c9ced6"  # of the contours
LOWEST = 1e-6  # of the heights, which are drawn by their logarithm


def plot_optimizers(numbers: Mapping[str, Any], path: Path | str) -> Path:
    """Draw what `clearformer.claims.optimizers.race` gives."""
    with picture(path, 13, 6) as figure:
        figure.suptitle(numbers["title"], fontsize=11)
        axes = figure.subplots(2, 4)
        for (name, surface), above, below in zip(numbers["surfaces"].items(), *axes):
            draw_paths(above, surface)
            above.set_title(f"{name}: {surface['equation']}", fontweight="bold")
            heights = {
                racer: (range(len(run["loss"])), np.maximum(np.array(run["loss"]) - surface["lowest"], LOWEST))
                for racer, run in surface["runs"].items()
            }
            draw_lines(below, heights, "updates", "height above the lowest point")
            by_logarithm(below)
        network = numbers["network"]
        draw_points(axes[0, 3], network)
        axes[0, 3].set_title(f"two spirals for {network['parameters']} weights", fontweight="bold")
        losses = {racer: (range(len(run["loss"])), run["loss"]) for racer, run in network["runs"].items()}
        draw_lines(axes[1, 3], losses, "passes over the data", "loss on all of it")
        by_logarithm(axes[1, 3])
        figure.legend(*axes[1, 3].get_legend_handles_labels(), loc="outside lower center", ncols=len(losses))
    return Path(path)


def draw_paths(ax: Axes, surface: Mapping[str, Any]) -> None:
    """Contours that crowd together towards the lowest point, and where each racer has stood after each update."""
    heights = np.array(surface["height"])
    levels = heights.min() + np.ptp(heights) * np.linspace(0, 1, 16) ** 2
    ax.contour(surface["x"], surface["y"], heights, levels, colors=FAINT, linewidths=0.7, linestyles="solid")
    for colour, run in zip(COLOURS, surface["runs"].values()):
        x, y = np.array(run["path"]).T
        ax.plot(x, y, color=colour, linewidth=0.9, marker=".", markersize=3, alpha=0.85)
    ax.plot(*run["path"][0], color=INK, marker="o", markersize=5)
    ax.set(
        xlabel="x", ylabel="y", xlim=surface["x"][:: len(surface["x"]) - 1], ylim=surface["y"][:: len(surface["y"]) - 1]
    )


def draw_points(ax: Axes, network: Mapping[str, Any]) -> None:
    points, classes = np.array(network["points"]), np.array(network["classes"])
    for label, colour in enumerate((BLUE, ORANGE)):
        ax.plot(*points[classes == label].T, color=colour, linestyle="", marker="o", markersize=3)
    ax.spines[:].set_color(MUTED)
    ax.set(xlabel="first feature", ylabel="second feature", aspect="equal")

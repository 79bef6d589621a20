"""Plot a comparison of optimisers: paths on surfaces and the data of a network above, losses below."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from clearformer.plots.contours import draw_contours
from clearformer.plots.lines import by_logarithm, draw_lines
from clearformer.plots.style import BLUE, COLOURS, INK, MUTED, ORANGE, saved_figure
from clearformer.wording import count

LOWEST = 1e-6  # smallest height drawn, on a logarithmic axis


def plot_optimizers(data: Mapping[str, Any], path: Path | str) -> Path:
    """Plot the data returned by `clearformer.claims.optimizers.race`."""
    with saved_figure(path, 13, 6) as figure:
        figure.suptitle(data["title"], fontsize=11)
        axes = figure.subplots(2, 4)
        for (name, surface), above, below in zip(data["surfaces"].items(), *axes):
            draw_paths(above, surface)
            above.set_title(f"{name}: {surface['equation']}", fontweight="bold")
            heights = {
                label: (range(len(run["loss"])), np.maximum(np.array(run["loss"]) - surface["lowest"], LOWEST))
                for label, run in surface["runs"].items()
            }
            draw_lines(below, heights, "updates", "height above the minimum")
            by_logarithm(below)
        network = data["network"]
        draw_points(axes[0, 3], network)
        axes[0, 3].set_title(f"two spirals, {count(network['parameters'], 'parameter')}", fontweight="bold")
        losses = {label: (range(len(run["loss"])), run["loss"]) for label, run in network["runs"].items()}
        draw_lines(axes[1, 3], losses, "epochs", "loss on all data")
        by_logarithm(axes[1, 3])
        figure.legend(*axes[1, 3].get_legend_handles_labels(), loc="outside lower center", ncols=len(losses))
    return Path(path)


def draw_paths(ax: Axes, surface: Mapping[str, Any]) -> None:
    """Draw the path of each optimiser, with a point after each update."""
    draw_contours(ax, surface)
    for colour, run in zip(COLOURS, surface["runs"].values()):
        ax.plot(*np.array(run["path"]).T, color=colour, linewidth=0.9, marker=".", markersize=3, alpha=0.85)
    ax.plot(*run["path"][0], color=INK, marker="o", markersize=5)


def draw_points(ax: Axes, network: Mapping[str, Any]) -> None:
    points, classes = np.array(network["points"]), np.array(network["classes"])
    for label, colour in enumerate((BLUE, ORANGE)):
        ax.plot(*points[classes == label].T, color=colour, linestyle="", marker="o", markersize=3)
    ax.spines[:].set_color(MUTED)
    ax.set(xlabel="first feature", ylabel="second feature", aspect="equal")

"""Plot token embeddings by their principal components, in two and three dimensions."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from clearformer.plots.lettering import lettering, make_visible
from clearformer.plots.style import BLUE, saved_figure

AXES = ("first", "second", "third")


def vector_figures(data: Mapping[str, Any]) -> dict[str, Callable[[Path], Path]]:
    """Return the figures of `clearformer.lens.vectors`: each map in two and, if it has them, three dimensions."""
    figures: dict[str, Callable[[Path], Path]] = {}
    for one in data["maps"]:
        title = data["title"] + (f", {one['name']}" if len(data["maps"]) > 1 else "")
        figures[f"{one['name']}, two dimensions"] = partial(plot_plane, one, title)
        if len(one["explained"]) > 2:
            figures[f"{one['name']}, three dimensions"] = partial(plot_space, one, title)
    return figures


def axis_names(one: Mapping[str, Any]) -> list[str]:
    return [f"{which} component, {part:.0%} of the variance" for which, part in zip(AXES, one["explained"])]


def plot_plane(one: Mapping[str, Any], title: str, path: Path | str) -> Path:
    """Plot the first two components, with a label at each point."""
    points, (families, words) = np.array(one["points"]), lettering([make_visible(token) for token in one["tokens"]])
    with saved_figure(path, 7.5, 6) as figure:
        figure.suptitle(title, fontsize=11)
        ax = figure.subplots()
        ax.plot(points[:, 0], points[:, 1], linestyle="", marker=".", markersize=4, color=BLUE)
        for (x, y, *_), word in zip(points, words):
            ax.annotate(word, (x, y), (3, 3), textcoords="offset points", fontfamily=families, fontsize=8)
        across, up, *_ = axis_names(one)
        ax.set(xlabel=across, ylabel=up)
        ax.margins(0.1)
        ax.grid()
    return Path(path)


def plot_space(one: Mapping[str, Any], title: str, path: Path | str) -> Path:
    """Plot three components in perspective. A line from each point to the floor shows its height."""
    points, (families, words) = np.array(one["points"]), lettering([make_visible(token) for token in one["tokens"]])
    with saved_figure(path, 7.5, 6.5) as figure:
        figure.suptitle(title, fontsize=11)
        ax: Any = figure.add_subplot(projection="3d")
        ax.scatter(*points.T, s=9, color=BLUE, depthshade=False)
        floor = points[:, 2].min()
        for (x, y, z), word in zip(points, words):
            ax.plot([x, x], [y, y], [floor, z], color=BLUE, linewidth=0.4, alpha=0.5)
            ax.text(x, y, z, f" {word}", fontfamily=families, fontsize=8)
        names = axis_names(one)
        ax.set(xlabel=names[0], ylabel=names[1], zlabel=names[2])
        ax.set_box_aspect(None, zoom=0.85)  # space for the label of the third axis
    return Path(path)

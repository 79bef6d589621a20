"""Where pictures or texts lie on a plane, coloured by class; and, of an autoencoder, what comes back of some."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from clearformer.plots.lettering import lettering
from clearformer.plots.pictures import draw_picture
from clearformer.plots.style import picture


def plot_embeddings(numbers: Mapping[str, Any], path: Path | str) -> Path:
    """Draw what `clearformer.lens.embeddings` gives."""
    rows = numbers.get("pictures", {})
    with picture(path, 9.5, 4.6 + 0.85 * len(rows)) as figure:
        figure.suptitle(numbers["title"], fontsize=11)
        planes: Figure | SubFigure = figure
        if rows:
            parts: Any = figure.subfigures(2, 1, height_ratios=[0.85 * len(rows), 4.6])
            top, planes = parts
            draw_rows(top, rows, numbers["error"])
        axes = planes.subplots(1, len(numbers["views"]))
        for ax, (name, view) in zip(axes, numbers["views"].items()):
            draw_plane(ax, view, numbers["labels"])
            ax.set_title(name, fontweight="bold")
        handles, labels = axes[0].get_legend_handles_labels()
        if len(labels) > 1:
            planes.legend(handles, lettering(labels)[1], loc="outside lower center", ncols=10, markerscale=3)
    return Path(path)


def draw_plane(ax: Axes, view: Mapping[str, Any], labels: list[str]) -> None:
    points, classes = np.array(view["points"]), sorted(set(labels))
    colours = matplotlib.colormaps["tab10" if len(classes) <= 10 else "turbo"]
    for k, name in enumerate(classes):
        own = points[np.array(labels) == name]
        colour = colours(k if len(classes) <= 10 else k / (len(classes) - 1))
        ax.plot(*own.T, linestyle="", marker=".", markersize=3, color=colour, label=name)
    axes = ("first", "second")
    if view["explained"] is None:
        told = [f"the {which} number" for which in axes]
    else:
        told = [
            f"the {which} principal component, {share:.0%} of the variance"
            for which, share in zip(axes, view["explained"])
        ]
    ax.set(xlabel=told[0], ylabel=told[1])


def draw_rows(figure: SubFigure, rows: Mapping[str, Any], error: Mapping[str, float]) -> None:
    """One row of pictures for each name, with its error where there is one."""
    n = len(next(iter(rows.values())))
    axes = figure.subplots(len(rows), n, squeeze=False)
    for own, (name, pictures) in zip(axes, rows.items()):
        for ax, pixels in zip(own, pictures):
            draw_picture(ax, pixels)
        told = f"{name}, error {error[name]:.3f}" if name in error else name
        families, [words] = lettering([told])
        own[0].set_title(" ", fontsize=8)  # makes room above; what is written there may be wider than a picture
        own[0].annotate(words, (0, 1.12), xycoords="axes fraction", family=families, fontsize=8).set_in_layout(False)

"""Plot embeddings of images or texts in two dimensions, coloured by class; for an autoencoder, also reconstructions."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from clearformer.plots.images import draw_image
from clearformer.plots.lettering import lettering
from clearformer.plots.style import saved_figure


def plot_embeddings(data: Mapping[str, Any], path: Path | str) -> Path:
    """Plot the data returned by `place` or `place_texts` of `clearformer.lens.embeddings`."""
    rows = data.get("images", {})
    with saved_figure(path, 9.5, 4.6 + 0.85 * len(rows)) as figure:
        figure.suptitle(data["title"], fontsize=11)
        planes: Figure | SubFigure = figure
        if rows:
            parts: Any = figure.subfigures(2, 1, height_ratios=[0.85 * len(rows), 4.6])
            top, planes = parts
            draw_rows(top, rows, data["error"], data.get("captions", {}))
        axes = planes.subplots(1, len(data["views"]))
        for ax, (name, view) in zip(axes, data["views"].items()):
            draw_plane(ax, view, data["labels"])
            ax.set_title(view.get("title", name), fontweight="bold")
        handles, labels = axes[0].get_legend_handles_labels()
        if len(labels) > 1:
            planes.legend(handles, lettering(labels)[1], loc="outside lower center", ncols=10, markerscale=3)
    return Path(path)


def draw_plane(ax: Axes, view: Mapping[str, Any], labels: list[str]) -> None:
    points, classes = np.array(view["points"]), sorted(set(labels))
    colours = matplotlib.colormaps["tab10" if len(classes) <= 10 else "turbo"]
    for k, name in enumerate(classes):
        members = points[np.array(labels) == name]
        colour = colours(k if len(classes) <= 10 else k / (len(classes) - 1))
        ax.plot(*members.T, linestyle="", marker=".", markersize=3, color=colour, label=name)
    axes = ("first", "second")
    if view["explained"] is None:
        titles = [f"{which} feature" for which in axes]
    else:
        titles = [
            f"{which} principal component, {fraction:.0%} of the variance"
            for which, fraction in zip(axes, view["explained"])
        ]
    ax.set(xlabel=titles[0], ylabel=titles[1])


def draw_rows(
    figure: SubFigure, rows: Mapping[str, Any], error: Mapping[str, float], captions: Mapping[str, str]
) -> None:
    """Draw a row of images for each name, with its caption, and its error if there is one."""
    n = len(next(iter(rows.values())))
    axes = figure.subplots(len(rows), n, squeeze=False)
    for row, (name, images) in zip(axes, rows.items()):
        for ax, pixels in zip(row, images):
            draw_image(ax, pixels)
        caption = captions.get(name, name) + (f", error {error[name]:.3f}" if name in error else "")
        families, [words] = lettering([caption])
        row[0].set_title(" ", fontsize=8)  # reserves the height of the caption, which may be wider than an image
        row[0].annotate(words, (0, 1.12), xycoords="axes fraction", family=families, fontsize=8).set_in_layout(False)

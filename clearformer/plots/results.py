"""Plot the results of a classifier: confusion matrix, reliability diagram, and a sheet of its errors."""

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from textwrap import shorten, wrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from clearformer.plots.images import draw_image
from clearformer.plots.lettering import lettering
from clearformer.plots.style import BLUE, INK, MUTED, ORANGE, saved_figure

COLUMNS = 5  # images per row of a sheet
FEW = 20  # classes up to which every cell of a confusion matrix shows its number


def plot_confusion(data: Mapping[str, Any], path: Path | str) -> Path:
    """Plot the matrix: rows are labels, columns are predictions. The colour is the fraction of the row."""
    table, n = np.asarray(data["confusion"]), len(data["classes"])
    fractions = table / np.maximum(table.sum(1, keepdims=True), 1)
    families, names = lettering([shorten(name, 24, placeholder="…") for name in data["classes"]])
    cell = 0.45 if n <= FEW else max(0.1, 6 / n)
    margin = 0.08 * max(map(len, names)) + 0.6
    with saved_figure(path, max(3.6, cell * n + margin + 0.8), max(3.0, cell * n + margin + 0.5)) as figure:
        ax = figure.subplots()
        figure.suptitle(data["title"], fontsize=10)
        image = ax.imshow(fractions, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
        stride = ceil(0.17 / cell)  # a line of text needs 0.17 inches
        ax.set(xticks=range(0, n, stride), yticks=range(0, n, stride), xlabel="prediction", ylabel="label")
        ax.set_xticklabels(names[::stride], rotation=45, ha="right", rotation_mode="anchor", fontfamily=families)
        ax.set_yticklabels(names[::stride], fontfamily=families)
        ax.tick_params(length=0)
        if n <= FEW:
            for i, j in np.ndindex(n, n):
                colour = "white" if fractions[i, j] > 0.6 else INK
                ax.text(j, i, f"{table[i, j]}", ha="center", va="center", fontsize=7, color=colour)
        bar = figure.colorbar(image, ax=ax, shrink=0.8)
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=0)
    return Path(path)


def plot_calibration(data: Mapping[str, Any], path: Path | str) -> Path:
    """Plot the accuracy of predictions by confidence, above the number of predictions. The diagonal is ideal."""
    rows = data["reliability"]
    with saved_figure(path, 4.2, 4.8) as figure:
        figure.suptitle(data["title"], fontsize=10)
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
        above.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle="--", label="ideal")
        draw_bars(above, rows, [row["accuracy"] for row in rows], BLUE)
        points = [row["confidence"] for row in rows], [row["accuracy"] for row in rows]
        above.plot(*points, color=ORANGE, linewidth=1.3, marker="o", markersize=3, label="model")
        above.set(xlim=(0, 1), ylim=(0, 1), ylabel="accuracy")
        above.legend(loc="upper left")
        draw_bars(below, rows, [row["examples"] for row in rows], MUTED)
        below.set(xlabel="confidence: probability of the prediction", ylabel="examples")
    return Path(path)


def draw_bars(ax: Axes, rows: Sequence[Mapping[str, Any]], heights: Sequence[float], colour: str) -> None:
    lows, widths = [row["low"] for row in rows], [row["high"] - row["low"] for row in rows]
    ax.bar(lows, heights, widths, align="edge", color=colour, alpha=0.35, edgecolor="white", linewidth=0.5)


def plot_errors(data: Mapping[str, Any], path: Path | str) -> Path:
    """Plot the errors as a sheet: images with their classes, or texts one below the other."""
    return plot_image_errors(data, path) if "images" in data else plot_text_errors(data, path)


def plot_image_errors(data: Mapping[str, Any], path: Path | str) -> Path:
    errors = data["errors"]
    rows = max(1, ceil(len(errors) / COLUMNS))
    with saved_figure(path, 1.6 * COLUMNS, 1.9 * rows + 0.6) as figure:
        figure.suptitle(data["title"], fontsize=10)
        axes = list(figure.subplots(rows, COLUMNS, squeeze=False).flat)
        for ax, error, pixels in zip(axes, errors, data["images"]):
            names = [shorten(error[name], 10, placeholder="…") for name in ("label", "predicted")]
            draw_image(ax, pixels, f"{names[0]} → {names[1]} {error['probability']:.2f}")
        for blank in axes[len(errors) :]:
            blank.remove()
    return Path(path)


def plot_text_errors(data: Mapping[str, Any], path: Path | str) -> Path:
    lines: list[tuple[str, str]] = []  # text and colour
    for error in data["errors"]:
        lines.append((f"{error['label']} → {error['predicted']} {error['probability']:.2f}", ORANGE))
        texts = [error[name] for name in ("word", "text", "pair") if name in error]
        lines += [(line, INK) for line in wrap(" | ".join(texts), 96, max_lines=3, placeholder=" …")]
    families, words = lettering([text for text, _ in lines])
    height = 0.17 * len(lines) + 0.6
    with saved_figure(path, 7.2, height) as figure:
        figure.suptitle(data["title"], fontsize=10)
        ax = figure.subplots()
        ax.set_axis_off()
        ax.set(xlim=(0, 1), ylim=(len(lines), 0))
        for i, (text, (_, colour)) in enumerate(zip(words, lines)):
            ax.text(0, i + 0.5, text, color=colour, fontsize=8, fontfamily=families, va="center")
    return Path(path)

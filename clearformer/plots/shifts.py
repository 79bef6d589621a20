"""Correlations layer by layer, when pictures move."""

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from clearformer.plots.lines import draw_lines
from clearformer.plots.style import picture

NAMED = 20  # layers, at most: of more, every second or so


def plot_shifts(numbers: Mapping[str, Any], path: Path | str) -> Path:
    """Draw what `clearformer.lens.shifts.measure` gives."""
    layers, distances = numbers["layers"], numbers["shifts"]
    names = [f"{name} (every {line['step']})" for name, line in layers.items()]
    with picture(path, 10, 4.6) as figure:
        figure.suptitle(numbers["title"], fontsize=11)
        moved, stayed = figure.subplots(1, 2, sharey=True)
        for ax, key, title in (
            (moved, "equivariance", "the map moved along, and the map of the moved picture"),
            (stayed, "invariance", "the map as it was, and that of the moved picture"),
        ):
            series = {
                f"{d} pixel{'s'[: d > 1]}": (range(len(layers)), [line[key][i] for line in layers.values()])
                for i, d in enumerate(distances)
            }
            draw_lines(ax, series, "", "correlation")
            ax.set_title(title, fontweight="bold")
            write_names(ax, names)
        for i, line in enumerate(stayed.get_lines()):
            end = [numbers["hidden"][i]]
            stayed.plot([len(layers)], end, color=line.get_color(), marker="s", markersize=5, linestyle="")
        write_names(stayed, names, "what the head reads")
        moved.legend(title="shifted by", title_fontsize=8)
    return Path(path)


def write_names(ax: Axes, names: Sequence[str], last: str | None = None) -> None:
    """Below the axis, as many as have room; `last` stands behind them."""
    stride = ceil(len(names) / NAMED)
    told = dict(list(enumerate(names))[: len(names) - stride + 1 : stride])
    told |= {} if last is None else {len(names): last}
    ax.set_xticks([*told], [*told.values()], rotation=60, ha="right", rotation_mode="anchor", fontsize=6)

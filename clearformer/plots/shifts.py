"""Correlations layer by layer, when pictures move."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearformer.plots.lines import draw_lines
from clearformer.plots.style import picture


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
            ax.set_xticks(range(len(names)), names, rotation=60, ha="right", rotation_mode="anchor", fontsize=6)
        for i, line in enumerate(stayed.get_lines()):
            end = [numbers["hidden"][i]]
            stayed.plot([len(layers)], end, color=line.get_color(), marker="s", markersize=5, linestyle="")
        stayed.set_xticks(
            range(len(names) + 1),
            [*names, "what the head reads"],
            rotation=60,
            ha="right",
            rotation_mode="anchor",
            fontsize=6,
        )
        moved.legend(title="shifted by", title_fontsize=8)
    return Path(path)

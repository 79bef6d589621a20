"""Plot how feature maps of each layer correlate before and after a shift of the images."""

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from clearformer.plots.lines import draw_lines
from clearformer.plots.style import saved_figure
from clearformer.wording import count

NAMED = 20  # layers that fit as labels; of more layers, only some are labelled


def plot_shifts(data: Mapping[str, Any], path: Path | str) -> Path:
    """Plot the data returned by `clearformer.lens.shifts.measure`."""
    layers, distances = data["layers"], data["shifts"]
    names = [f"{name} (stride {line['step']})" for name, line in layers.items()]
    with saved_figure(path, 10, 4.6) as figure:
        figure.suptitle(data["title"], fontsize=11)
        moved, stayed = figure.subplots(1, 2, sharey=True)
        for ax, key, title in (
            (moved, "equivariance", "equivariance: with the shifted map"),
            (stayed, "invariance", "invariance: with the original map"),
        ):
            series = {
                count(d, "pixel"): (range(len(layers)), [line[key][i] for line in layers.values()])
                for i, d in enumerate(distances)
            }
            draw_lines(ax, series, "", "correlation")
            ax.set_title(title, fontweight="bold")
            write_names(ax, names)
        for i, line in enumerate(stayed.get_lines()):
            end = [data["hidden"][i]]
            stayed.plot([len(layers)], end, color=line.get_color(), marker="s", markersize=5, linestyle="")
        write_names(stayed, names, "input of the head")
        moved.legend(title="shifted by", title_fontsize=8)
    return Path(path)


def write_names(ax: Axes, names: Sequence[str], last: str | None = None) -> None:
    """Label the horizontal axis with as many names as fit, and with `last` after them."""
    stride = ceil(len(names) / NAMED)
    labels = dict(list(enumerate(names))[: len(names) - stride + 1 : stride])
    labels |= {} if last is None else {len(names): last}
    ax.set_xticks([*labels], [*labels.values()], rotation=60, ha="right", rotation_mode="anchor", fontsize=6)

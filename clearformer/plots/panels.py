"""Plot several panels of lines side by side, each with a title of its own."""

from collections.abc import Mapping
from math import ceil
from pathlib import Path
from typing import Any

from clearformer.plots.lines import by_logarithm, draw_lines
from clearformer.plots.style import saved_figure

ACROSS = 3  # panels in a row


def plot_panels(data: Mapping[str, Any], path: Path | str) -> Path:
    """Plot the `panels` of a claim: title, across, up, series {name: [x, y]}, and whether y is logarithmic.

    A line may have gaps, None, where a value is 0 on a logarithmic axis or not finite.
    """
    panels = data["panels"]
    rows = ceil(len(panels) / ACROSS)
    with saved_figure(path, 4.2 * min(ACROSS, len(panels)), 3.3 * rows + 0.3) as figure:
        figure.suptitle(data["title"], fontsize=11)
        axes = figure.subplots(rows, min(ACROSS, len(panels)), squeeze=False).flatten()
        for ax, panel in zip(axes, panels):
            series = {
                name: (x, [float("nan") if value is None else value for value in y])
                for name, (x, y) in panel["series"].items()
            }
            draw_lines(ax, series, panel["across"], panel["up"])
            if panel["is_log"]:
                by_logarithm(ax)
            ax.set_title(panel["title"], fontweight="bold")
            ax.legend()
        for ax in axes[len(panels) :]:
            ax.set_visible(False)
    return Path(path)

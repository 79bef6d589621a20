"""Plot learning rates by step, with their cumulative sums and sums of squares."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearformer.plots.lines import by_logarithm, draw_lines
from clearformer.plots.style import saved_figure


def plot_schedules(data: Mapping[str, Any], path: Path | str) -> Path:
    """Plot the data returned by `clearformer.claims.schedules.follow`."""
    lines, marks = data["schedules"], data["marks"]
    with saved_figure(path, 11, 3.6) as figure:
        figure.suptitle(data["title"], fontsize=11)
        rates, sums, squares = figure.subplots(1, 3)
        steps = range(1, data["steps"] + 1)
        draw_lines(rates, {kind: (steps, line["rate"]) for kind, line in lines.items()}, "step", "fraction of the peak")
        rates.set_title("learning rate ε_k", fontweight="bold")
        for ax, key, title in ((sums, "sum", "Σ ε_k"), (squares, "sum_of_squares", "Σ ε_k²")):
            draw_lines(ax, {kind: (marks, line[key]) for kind, line in lines.items()}, "steps", title, scale="log")
            by_logarithm(ax)
            ax.set_title(title, fontweight="bold")
        figure.legend(*rates.get_legend_handles_labels(), loc="outside lower center", ncols=len(lines))
    return Path(path)

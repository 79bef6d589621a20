"""Learning rates by step, and how their sum and the sum of their squares grow."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearformer.plots.lines import by_logarithm, draw_lines
from clearformer.plots.style import picture


def plot_schedules(numbers: Mapping[str, Any], path: Path | str) -> Path:
    """Draw what `clearformer.claims.schedules.follow` gives."""
    lines, marks = numbers["schedules"], numbers["marks"]
    with picture(path, 11, 3.6) as figure:
        figure.suptitle(numbers["title"], fontsize=11)
        rates, sums, squares = figure.subplots(1, 3)
        steps = range(1, numbers["steps"] + 1)
        draw_lines(
            rates, {kind: (steps, line["rate"]) for kind, line in lines.items()}, "step", "share of the peak rate"
        )
        rates.set_title("the rate ε_k", fontweight="bold")
        for ax, key, title in ((sums, "sum", "Σ ε_k"), (squares, "sum_of_squares", "Σ ε_k²")):
            draw_lines(ax, {kind: (marks, line[key]) for kind, line in lines.items()}, "steps", title, scale="log")
            by_logarithm(ax)
            ax.set_title(title, fontweight="bold")
        figure.legend(*rates.get_legend_handles_labels(), loc="outside lower center", ncols=len(lines))
    return Path(path)

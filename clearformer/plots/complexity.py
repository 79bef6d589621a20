"""Plot cost against text length: seconds, seconds per token, multiply-adds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearformer.plots.lines import by_logarithm, draw_lines
from clearformer.plots.style import saved_figure


def plot_complexity(data: Mapping[str, Any], path: Path | str) -> Path:
    """Plot the data returned by `clearformer.claims.complexity.measure`."""
    lengths, seconds, multiply_adds = data["lengths"], data["seconds"], data["multiply_adds"]

    def series(costs: Mapping[str, Any]) -> dict[str, tuple[list[float], list[float]]]:
        return {f"{name}: T^{line['exponent']:.2f}": (lengths, line["cost"]) for name, line in costs.items()}

    with saved_figure(path, 12, 4) as figure:
        figure.suptitle(data["title"], fontsize=11)
        whole, each, counted = figure.subplots(1, 3)
        draw_lines(whole, series(seconds), "length T, tokens", "seconds", scale="log")
        whole.set_title("time of one layer, measured", fontweight="bold")
        per_token = {
            name: (lengths, [1e6 * s / T for s, T in zip(line["cost"], lengths)]) for name, line in seconds.items()
        }
        draw_lines(each, per_token, "length T, tokens", "microseconds per token", scale="log")
        each.set_title("time per token, measured", fontweight="bold")
        draw_lines(counted, series(multiply_adds), "length T, tokens", "multiply-adds", scale="log")
        counted.set_title("multiply-adds, counted", fontweight="bold")
        for ax in (whole, counted):
            by_logarithm(ax)
        for ax in (whole, each, counted):
            ax.legend()
    return Path(path)

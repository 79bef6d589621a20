"""Cost against length: seconds, seconds for each token, multiplications."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearformer.plots.lines import by_logarithm, draw_lines
from clearformer.plots.style import picture


def plot_complexity(numbers: Mapping[str, Any], path: Path | str) -> Path:
    """Draw what `clearformer.claims.complexity.measure` gives."""
    lengths, seconds, products = numbers["lengths"], numbers["seconds"], numbers["multiplications"]

    def series(costs: Mapping[str, Any]) -> dict[str, tuple[list[float], list[float]]]:
        return {f"{name}: T^{one['exponent']:.2f}": (lengths, one["cost"]) for name, one in costs.items()}

    with picture(path, 12, 4) as figure:
        figure.suptitle(numbers["title"], fontsize=11)
        whole, each, counted = figure.subplots(1, 3)
        draw_lines(whole, series(seconds), "length T, tokens", "seconds", scale="log")
        whole.set_title("one layer over a text, measured", fontweight="bold")
        per_token = {
            name: (lengths, [1e6 * s / T for s, T in zip(one["cost"], lengths)]) for name, one in seconds.items()
        }
        draw_lines(each, per_token, "length T, tokens", "microseconds a token", scale="log")
        each.set_title("for each token of it", fontweight="bold")
        draw_lines(counted, series(products), "length T, tokens", "multiplications", scale="log")
        counted.set_title("multiplications, counted", fontweight="bold")
        for ax in (whole, counted):
            by_logarithm(ax)
        for ax in (whole, each, counted):
            ax.legend()
    return Path(path)

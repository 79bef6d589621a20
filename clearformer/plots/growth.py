"""Plot how time and memory grow: training with context, batch, vocabulary and depth, decoding with the position."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from clearformer.plots.lines import Series, by_logarithm, draw_lines
from clearformer.plots.style import saved_figure

NAMES = {"none": "all stored", "blocks": "blocks recomputed"}  # values of train.recompute
TITLES = {"seconds": "time", "peak_gb": "memory"}
AXES = {
    "context": "context, tokens",
    "batch": "batch, rows",
    "vocabulary": "vocabulary, tokens",
    "depth": "depth, blocks",
}


def plot_growth(data: Mapping[str, Any], path: Path | str) -> Path:
    """Plot the results of benchmarks/growth.py.

    data["context"]["blocks"]["1024"] = {"seconds": …, "peak_gb": …}, with null for sizes that do not fit into memory;
    data["decode"] has the last position of each window and the milliseconds per token in it.
    """
    decode = data["decode"]
    with saved_figure(path, 12.5, 7) as figure:
        figure.suptitle(data["title"], fontsize=11)
        axes = figure.subplots(2, 3)
        draw_growth(axes[0, 0], data, "context", "seconds", "seconds per step")
        draw_growth(axes[0, 1], data, "context", "peak_gb", "peak memory, GB")
        draw_lines(
            axes[0, 2],
            {"": (decode["positions"], decode["milliseconds"])},
            "position, tokens",
            "milliseconds per token",
        )
        axes[0, 2].set_ylim(0, 1.25 * max(decode["milliseconds"]))
        axes[0, 2].set_title("decoding: time by position", fontweight="bold")
        for ax, across in zip(axes[1], ("batch", "vocabulary", "depth")):
            draw_growth(ax, data, across, "peak_gb", "peak memory, GB")
    return Path(path)


def draw_growth(ax: Axes, data: Mapping[str, Any], across: str, key: str, up: str) -> None:
    """Draw one panel on logarithmic axes, with the exponent p of cost ∝ size^p in the legend."""
    slopes = data["growth"][across]
    series: Series = {
        f"{NAMES[how]}: {across}^{slopes[how][key]['slope']:.2f}": points_of(rows, key)
        for how, rows in data[across].items()
    }
    draw_lines(ax, series, AXES[across], up, scale="log")
    by_logarithm(ax)
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    sizes = sorted({size for x, _ in series.values() for size in x})
    ax.set_xticks(sizes, [f"{size:,.0f}" if size < 2**13 else f"{size / 1024:,.0f}k" for size in sizes])
    ax.minorticks_off()
    ax.set_title(f"training: {TITLES[key]} by {across}", fontweight="bold")
    ax.legend()


def points_of(rows: Mapping[str, Mapping[str, float] | None], key: str) -> tuple[list[float], list[float]]:
    """Return sizes and costs, without the sizes that do not fit into memory."""
    points = [(float(size), row[key]) for size, row in rows.items() if row is not None]
    return [x for x, _ in points], [y for _, y in points]

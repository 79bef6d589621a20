"""Draw line plots, such as accuracy against the number of examples."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, NullFormatter

from clearformer.errors import DataError
from clearformer.plots.style import COLOURS, saved_figure

Scale = Literal["linear", "log"]
Series = Mapping[str, tuple[Sequence[float], Sequence[float]]]  # name -> (x, y)

DASHES = ("-", "--", ":", "-.")
FEW = 30  # lines with at most this many points have markers


def plot_lines(
    series: Series,
    across: str,
    up: str,
    path: Path | str,
    scale: Scale = "linear",
    limits: tuple[float, float] | None = None,
) -> Path:
    """Plot one line per name. `across` and `up` are the axis labels, `limits` the limits of the vertical axis."""
    if not any(len(x) for x, _ in series.values()):
        raise DataError("nothing to plot: every line is empty", "give at least one point")
    with saved_figure(path, 4.6, 3.0) as figure:
        ax = figure.subplots()
        draw_lines(ax, series, across, up, scale)
        if limits is not None:
            ax.set_ylim(*limits)
        ax.legend()
    return Path(path)


def draw_lines(ax: Axes, series: Series, across: str, up: str, scale: Scale = "linear") -> None:
    """Draw lines into existing axes. Colours repeat after eight lines, with a different dash style."""
    for i, (name, (x, y)) in enumerate(series.items()):
        dash, colour = DASHES[i // len(COLOURS) % len(DASHES)], COLOURS[i % len(COLOURS)]
        mark = "o" if len(x) <= FEW else ""
        ax.plot(x, y, linewidth=1.3, marker=mark, markersize=3, label=name, color=colour, linestyle=dash)
    ax.set_xscale(scale)
    if scale == "linear":
        ax.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10], integer=True))
    else:  # matplotlib's default labels, powers of ten, need math text, which is disabled
        ax.xaxis.set_major_formatter("{x:,.0f}" if ax.get_xlim()[1] > 1 else "{x:g}")
        ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel(across)
    ax.set_ylabel(up)
    ax.grid(axis="y")


def by_logarithm(ax: Axes) -> None:
    """Use a logarithmic vertical axis with plain numerals; matplotlib's powers of ten need math text."""
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter("{x:,g}")
    ax.yaxis.set_minor_formatter(NullFormatter())

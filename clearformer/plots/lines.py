"""Several quantities over one: accuracy against shots, scores against the number of examples."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from matplotlib.ticker import MaxNLocator, NullFormatter, StrMethodFormatter

from clearformer.errors import DataError
from clearformer.plots.style import BLUE, INK, MUTED, ORANGE, picture

COLOURS = (BLUE, ORANGE, INK, MUTED)
DASHES = ("-", "--", ":", "-.")


def plot_lines(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    across: str,
    up: str,
    path: Path | str,
    scale: Literal["linear", "log"] = "linear",
    limits: tuple[float, float] | None = None,
) -> Path:
    """One line for each name: its (x, y). `across` and `up` say what the axes are, `limits` where the upright one ends.

    Colours repeat after four, with another dash.
    """
    if not any(len(x) for x, _ in series.values()):
        raise DataError("nothing to draw: every line is empty", "give at least one point")
    with picture(path, 4.6, 3.0) as figure:
        ax = figure.subplots()
        for i, (name, (x, y)) in enumerate(series.items()):
            dash = DASHES[i // len(COLOURS) % len(DASHES)]
            look: dict[str, Any] = {"color": COLOURS[i % len(COLOURS)], "linestyle": dash}
            ax.plot(x, y, linewidth=1.3, marker="o", markersize=3, label=name, **look)
        ax.set_xscale(scale)
        if scale == "linear":
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        else:  # matplotlib's own labels are powers of ten in mathematical type, which is switched off
            ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            ax.xaxis.set_minor_formatter(NullFormatter())
        if limits is not None:
            ax.set_ylim(*limits)
        ax.set_xlabel(across)
        ax.set_ylabel(up)
        ax.grid(axis="y")
        ax.legend()
    return Path(path)

"""Positions as vectors and as biases: the table, likeness against distance, the rotation T_k, ALiBi, T5's buckets."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from clearformer.plots.lines import draw_lines
from clearformer.plots.style import BLUE, MUTED, ORANGE, picture


def plot_positions(numbers: Mapping[str, Any], path: Path | str) -> Path:
    """Draw what `clearformer.claims.positions.look` gives."""
    k = numbers["shift"]
    with picture(path, 12, 6.6) as figure:
        figure.suptitle(numbers["title"], fontsize=11)
        (table, likeness, matrix), (circle, alibi, t5) = figure.subplots(2, 3)

        image = table.imshow(numbers["table"], cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
        table.set_title("sinusoids: sin and cos by turns, ever slower", fontweight="bold")
        table.set(xlabel="feature", ylabel="position")
        matrix.imshow(numbers["shift_matrix"], cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
        matrix.set_title("T: each pair turned by its own angle", fontweight="bold")
        matrix.set(xlabel="feature of PE(p)", ylabel=f"feature of PE(p + {k})")
        figure.colorbar(image, ax=[table, matrix], shrink=0.7).outline.set_visible(False)

        draw_likeness(likeness, numbers["likeness"])
        likeness.set_title("likeness depends on the distance alone", fontweight="bold")

        draw_circle(circle, np.array(numbers["circle"]), k)
        circle.set_title(f"pair {numbers['pair']}: {k} positions on is always the same turn", fontweight="bold")

        slopes = {f"head {h}": (range(len(bias)), bias) for h, bias in enumerate(numbers["alibi"])}
        draw_lines(alibi, slopes, "distance", "bias on the score")
        alibi.set_title("ALiBi: the farther, the fainter", fontweight="bold")
        alibi.legend(ncols=2)

        t5.step(numbers["ahead"], numbers["t5_bucket"], where="mid", color=BLUE, linewidth=1.3)
        t5.set(xlabel="position of the key − of the query", ylabel="bucket")
        t5.grid(axis="y")
        t5.set_title("T5: one learnt bias for each bucket of distances", fontweight="bold")
    return Path(path)


def draw_likeness(ax: Axes, likeness: Mapping[str, Any]) -> None:
    """A line as seen from one position, dots as seen from another: where they agree, only the distance counts."""
    first, second = next(iter(likeness.values()))
    draw_lines(
        ax,
        {name: (range(len(seen[first])), seen[first]) for name, seen in likeness.items()},
        f"distance from position {first} (lines), from {second} (dots)",
        "cosine between the two vectors",
    )
    for line, seen in zip(ax.get_lines(), likeness.values()):
        ax.plot(seen[second], color=line.get_color(), linestyle="", marker="o", markersize=2.5)
    ax.set_ylim(top=1.5)  # room for the legend
    ax.legend(loc="upper right")


def draw_circle(ax: Axes, points: np.ndarray, k: int) -> None:
    """Where a pair of features stands at each position, and arrows from p to p + k."""
    ax.plot(*points.T, color=MUTED, linestyle="", marker=".", markersize=4)
    for p in range(0, len(points) - k, k):
        arrow = {"arrowstyle": "-|>", "color": ORANGE, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", points[p + k], points[p], arrowprops=arrow)
        ax.annotate(f"p = {p}", points[p], 1.25 * points[p], color=BLUE, fontsize=8, ha="center", va="center")
    ax.set(xlabel="sin ω p", ylabel="cos ω p", aspect="equal", xlim=(-1.6, 1.6), ylim=(-1.5, 1.5))

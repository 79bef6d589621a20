"""Plot position encodings: sinusoids, similarity against distance, the rotation T_k, ALiBi, and T5's buckets."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from clearformer.plots.lines import draw_lines
from clearformer.plots.style import BLUE, MUTED, ORANGE, saved_figure


def plot_positions(data: Mapping[str, Any], path: Path | str) -> Path:
    """Plot the data returned by `clearformer.claims.positions.look`."""
    k = data["shift"]
    with saved_figure(path, 12, 6.6) as figure:
        figure.suptitle(data["title"], fontsize=11)
        (table, similarity, matrix), (circle, alibi, t5) = figure.subplots(2, 3)

        image = table.imshow(data["table"], cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
        table.set_title("sinusoids: sin and cos of falling frequency", fontweight="bold")
        table.set(xlabel="feature", ylabel="position")
        matrix.imshow(data["shift_matrix"], cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
        matrix.set_title("T rotates each pair of features", fontweight="bold")
        matrix.set(xlabel="feature of PE(p)", ylabel=f"feature of PE(p + {k})")
        figure.colorbar(image, ax=[table, matrix], shrink=0.7).outline.set_visible(False)

        draw_similarity(similarity, data["likeness"])
        similarity.set_title("similarity depends only on the distance", fontweight="bold")

        draw_circle(circle, np.array(data["circle"]), k)
        circle.set_title(f"pair {data['pair']}: a shift by {k} is a fixed rotation", fontweight="bold")

        slopes = {f"head {h}": (range(len(bias)), bias) for h, bias in enumerate(data["alibi"])}
        draw_lines(alibi, slopes, "distance", "bias on the attention score")
        alibi.set_title("ALiBi: a penalty for distance", fontweight="bold")
        alibi.legend(ncols=2)

        t5.step(data["ahead"], data["t5_bucket"], where="mid", color=BLUE, linewidth=1.3)
        t5.set(xlabel="key position − query position", ylabel="bucket")
        t5.grid(axis="y")
        t5.set_title("T5: one learned bias per bucket of distances", fontweight="bold")
    return Path(path)


def draw_similarity(ax: Axes, similarity: Mapping[str, Any]) -> None:
    """Draw similarity to one position as lines and to another as dots. If they agree, only the distance matters."""
    first, second = next(iter(similarity.values()))
    draw_lines(
        ax,
        {name: (range(len(values[first])), values[first]) for name, values in similarity.items()},
        f"distance from position {first} (lines), from {second} (dots)",
        "cosine similarity",
    )
    for line, values in zip(ax.get_lines(), similarity.values()):
        ax.plot(values[second], color=line.get_color(), linestyle="", marker="o", markersize=2.5)
    ax.set_ylim(top=1.5)  # space for the legend
    ax.legend(loc="upper right")


def draw_circle(ax: Axes, points: np.ndarray, k: int) -> None:
    """Draw a pair of features at each position, with arrows from p to p + k."""
    ax.plot(*points.T, color=MUTED, linestyle="", marker=".", markersize=4)
    for p in range(0, len(points) - k, k):
        arrow = {"arrowstyle": "-|>", "color": ORANGE, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", points[p + k], points[p], arrowprops=arrow)
        ax.annotate(f"p = {p}", points[p], 1.25 * points[p], color=BLUE, fontsize=8, ha="center", va="center")
    ax.set(xlabel="sin ω p", ylabel="cos ω p", aspect="equal", xlim=(-1.6, 1.6), ylim=(-1.5, 1.5))

"""Plot the position encodings of a model: similarity, norms, and how well a rotation explains a shift."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from clearformer.plots.lines import draw_lines
from clearformer.plots.style import BLUE, saved_figure


def position_figures(data: Mapping[str, Any]) -> dict[str, Callable[[Path], Path]]:
    """Return one figure for each encoding of `clearformer.lens.positions.positions`."""
    return {
        f"{one['name']}, {one['kind']}": partial(plot_encoding, one, f"{data['title']}, {one['name']}, {one['kind']}")
        for one in data["encodings"]
    }


def plot_encoding(one: Mapping[str, Any], title: str, path: Path | str) -> Path:
    panels = [draw for key, draw in PANELS.items() if one.get(key)]
    with saved_figure(path, 0.8 + 4.2 * len(panels), 4.2) as figure:
        figure.suptitle(title, fontsize=11)
        for ax, draw in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels):
            draw(ax, one)
    return Path(path)


def draw_similarity(ax: Axes, one: Mapping[str, Any]) -> None:
    image = ax.imshow(one["similarity"], cmap="RdBu", vmin=-1, vmax=1, interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, shrink=0.7).outline.set_visible(False)
    ax.set_title("cosine similarity")
    ax.set(xlabel="position", ylabel="position")


def draw_norms(ax: Axes, one: Mapping[str, Any]) -> None:
    draw_lines(ax, {"norm": (range(len(one["norms"])), one["norms"])}, "position", "norm")
    ax.set_ylim(bottom=0)
    ax.set_title("norm of each position")


def draw_shifts(ax: Axes, one: Mapping[str, Any]) -> None:
    shifts = one["shifts"]
    errors = [shift["error"] for shift in shifts.values()]
    ax.bar(range(len(shifts)), errors, color=BLUE, width=0.6)
    for i, error in enumerate(errors):
        ax.annotate(f"{error:.1e}" if error < 0.001 else f"{error:.2f}", (i, error), ha="center", va="bottom")
    ax.set_xticks(range(len(shifts)), list(shifts))
    ax.set(xlabel="shift k", ylabel="error of a rotation", ylim=(0, max(1.05, 1.1 * max(errors))))
    is_exact = all(shift["is_exact"] for shift in shifts.values())
    ax.set_title("PE(p + k) = T_k PE(p)" if is_exact else "P[p + k] ≈ R_k P[p], R_k fitted")


def draw_distance(ax: Axes, one: Mapping[str, Any]) -> None:
    values = one["by_distance"]
    draw_lines(ax, {"similarity": (range(len(values)), values)}, "distance, tokens", "cosine similarity")
    ax.set_title("a vector rotated by p and by p + distance")


def draw_bias(ax: Axes, one: Mapping[str, Any]) -> None:
    draw_lines(
        ax,
        {f"head {h}": (one["distance"], bias) for h, bias in enumerate(one["bias"])},
        "key position − query position",
        "bias on the attention score",
    )
    ax.set_title("bias by distance")
    ax.legend(ncols=2)


PANELS: dict[str, Callable[[Axes, Mapping[str, Any]], None]] = {
    "similarity": draw_similarity,
    "norms": draw_norms,
    "shifts": draw_shifts,
    "by_distance": draw_distance,
    "bias": draw_bias,
}

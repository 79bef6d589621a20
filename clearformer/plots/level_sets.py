"""Level sets and the gradients that stand on them; how square they stand; how φ rises in every other direction."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from clearformer.plots.contours import draw_contours
from clearformer.plots.lines import by_logarithm, draw_lines
from clearformer.plots.style import BLUE, INK, ORANGE, picture

LENGTH = 0.35  # of the tangents, each way


def plot_level_sets(numbers: Mapping[str, Any], path: Path | str) -> Path:
    """Draw what `clearformer.claims.level_sets.walk` gives."""
    with picture(path, 12, 4) as figure:
        figure.suptitle(numbers["title"], fontsize=11)
        field, square, rise = figure.subplots(1, 3)

        draw_contours(field, numbers)
        levels = sorted(place["height"] for place in numbers["places"])
        field.contour(
            numbers["x"], numbers["y"], numbers["height"], levels, colors=BLUE, linewidths=0.9, linestyles="solid"
        )
        for place in numbers["places"]:
            point, step = np.array(place["point"]), np.array(place["step"])
            ends = point + LENGTH * np.outer([-1, 1], step / np.linalg.norm(step))
            field.plot(*ends.T, color=INK, linewidth=0.9, linestyle="--")
            arrow = {"arrowstyle": "-|>", "color": ORANGE, "shrinkA": 0, "shrinkB": 0}
            field.annotate("", point + 0.4 * np.array(place["gradient"]), point, arrowprops=arrow)
        field.set(aspect="equal")
        field.set_title(f"φ = {numbers['equation']}", fontweight="bold")

        series = {
            "({:.1f}, {:.1f})".format(*place["point"]): (numbers["radii"], np.abs(np.array(place["degrees"]) - 90))
            for place in numbers["places"]
        }
        draw_lines(square, series, "length of the step along the level set", "degrees from a right angle", scale="log")
        by_logarithm(square)
        square.set_title("the shorter the step, the squarer", fontweight="bold")
        square.legend(title="from", title_fontsize=8)

        theory = numbers["slope"] * np.cos(np.radians(numbers["turn"]))
        rise.plot(
            numbers["turn"], numbers["rise"], color=ORANGE, linestyle="", marker="o", markersize=5, label="measured"
        )
        draw_lines(rise, {"|∇φ| cos θ": (numbers["turn"], theory)}, "θ, degrees from the gradient", "rise per length")
        rise.set_title("φ rises most along the gradient, by |∇φ|", fontweight="bold")
        rise.legend()
    return Path(path)

"""Plot level sets of φ with gradients, the angle between the two, and the slope of φ in all directions."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from clearformer.plots.contours import draw_contours
from clearformer.plots.lines import by_logarithm, draw_lines
from clearformer.plots.style import BLUE, INK, ORANGE, saved_figure

LENGTH = 0.35  # half the length of a tangent


def plot_level_sets(data: Mapping[str, Any], path: Path | str) -> Path:
    """Plot the data returned by `clearformer.claims.level_sets.walk`."""
    with saved_figure(path, 12, 4) as figure:
        figure.suptitle(data["title"], fontsize=11)
        field, square, rise = figure.subplots(1, 3)

        draw_contours(field, data)
        levels = sorted(place["height"] for place in data["places"])
        field.contour(data["x"], data["y"], data["height"], levels, colors=BLUE, linewidths=0.9, linestyles="solid")
        for place in data["places"]:
            point, step = np.array(place["point"]), np.array(place["step"])
            ends = point + LENGTH * np.outer([-1, 1], step / np.linalg.norm(step))
            field.plot(*ends.T, color=INK, linewidth=0.9, linestyle="--")
            arrow = {"arrowstyle": "-|>", "color": ORANGE, "shrinkA": 0, "shrinkB": 0}
            field.annotate("", point + 0.4 * np.array(place["gradient"]), point, arrowprops=arrow)
        field.set(aspect="equal")
        field.set_title(f"φ = {data['equation']}", fontweight="bold")

        series = {
            "({:.1f}, {:.1f})".format(*place["point"]): (data["radii"], np.abs(np.array(place["degrees"]) - 90))
            for place in data["places"]
        }
        draw_lines(square, series, "length of the step along the level set", "deviation from 90°, degrees", scale="log")
        by_logarithm(square)
        square.set_title("angle between gradient and level set", fontweight="bold")
        square.legend(title="from", title_fontsize=8)

        theory = data["slope"] * np.cos(np.radians(data["turn"]))
        rise.plot(data["turn"], data["rise"], color=ORANGE, linestyle="", marker="o", markersize=5, label="measured")
        draw_lines(rise, {"|∇φ| cos θ": (data["turn"], theory)}, "θ, degrees from the gradient", "slope")
        rise.set_title("φ rises fastest along the gradient", fontweight="bold")
        rise.legend()
    return Path(path)

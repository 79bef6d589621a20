"""Plot training losses with and without batch norm, and the gradient norm of each layer at initialisation."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearformer.plots.lines import by_logarithm, draw_lines
from clearformer.plots.style import MUTED, saved_figure

SMOOTH = 10  # steps averaged per point of the loss


def plot_batch_norm(data: Mapping[str, Any], path: Path | str) -> Path:
    """Plot the data returned by `clearformer.claims.batch_norm.train`."""
    runs = data["runs"]
    with saved_figure(path, 10, 4.2) as figure:
        figure.suptitle(data["title"], fontsize=11)
        loss, slope = figure.subplots(1, 2)
        curves = {name: in_means(run["loss"]) for name, run in runs.items()}
        draw_lines(loss, curves, "step", f"loss, mean of {SMOOTH} steps")
        loss.axhline(data["chance"], color=MUTED, linewidth=0.6, linestyle=":")
        loss.set_title("training loss (dotted: chance level)", fontweight="bold")
        first = {name: (range(1, len(run["slope"]) + 1), run["slope"]) for name, run in runs.items()}
        draw_lines(slope, first, "layer", "gradient norm")
        by_logarithm(slope)
        slope.set_title("gradient norm of each layer before training", fontweight="bold")
        figure.legend(*loss.get_legend_handles_labels(), loc="outside lower center", ncols=len(runs))
    return Path(path)


def in_means(losses: list[float]) -> tuple[list[float], list[float]]:
    starts = range(0, len(losses) - SMOOTH + 1, SMOOTH)
    return [start + SMOOTH for start in starts], [sum(losses[i : i + SMOOTH]) / SMOOTH for i in starts]

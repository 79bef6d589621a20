"""Plot a comparison of models: validation metric by step and by time, and test BLEU by sentence length."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from clearformer.plots.lines import by_logarithm, draw_lines
from clearformer.plots.style import saved_figure


def plot_comparison(results: Mapping[str, Any], path: Path | str) -> Path:
    """Plot the results of `clearformer.compare`, averaged over seeds."""
    runs, metric = results["runs"], results["metric"]
    has_lengths = all(run["by_length"] for seeds in runs.values() for run in seeds)
    with saved_figure(path, 12 if has_lengths else 8.4, 3.8) as figure:
        figure.suptitle(results["title"], fontsize=11)
        axes = figure.subplots(1, 3 if has_lengths else 2)
        for ax, key, across in ((axes[0], "step", "steps"), (axes[1], "seconds", "seconds of training")):
            curves = {
                name: (average(run["curve"][key] for run in seeds), average(run["curve"]["score"] for run in seeds))
                for name, seeds in runs.items()
            }
            draw_lines(ax, curves, across, f"validation {metric}")
            if is_wide(scores for _, scores in curves.values()):
                by_logarithm(ax)
            if results["goal"] is not None:
                ax.axhline(results["goal"], color="black", linewidth=0.6, linestyle=":")
        axes[0].set_title("by step", fontweight="bold")
        axes[1].set_title("by time", fontweight="bold")
        if has_lengths:
            series = {
                name: (average(column(run, "words") for run in seeds), average(column(run, "bleu") for run in seeds))
                for name, seeds in runs.items()
            }
            draw_lines(axes[2], series, "source words", "test BLEU")
            axes[2].set_title("by sentence length", fontweight="bold")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(runs))
    return Path(path)


def is_wide(curves: Iterable[Sequence[float]]) -> bool:
    """Whether scores differ so much, as the losses of a training that diverges do, that only logarithms show them."""
    scores = [score for curve in curves for score in curve]
    return bool(scores) and min(scores) > 0 and max(scores) > 100 * min(scores)


def column(run: Mapping[str, Any], key: str) -> list[float]:
    return [group[key] for group in run["by_length"]]


def average(seeds: Any) -> Sequence[float]:
    """Return the mean over seeds, point by point, up to the end of the shortest curve."""
    return [mean(values) for values in zip(*seeds)]

"""Contenders side by side: their score by steps and by seconds, and BLEU against the length of the sentence."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from clearformer.plots.lines import draw_lines
from clearformer.plots.style import picture


def plot_comparison(results: Mapping[str, Any], path: Path | str) -> Path:
    """Draw the results of `clearformer.compare`, averaged over seeds."""
    runs, metric = results["runs"], results["metric"]
    has_lengths = all(run["by_length"] for own in runs.values() for run in own)
    with picture(path, 12 if has_lengths else 8.4, 3.8) as figure:
        figure.suptitle(results["title"], fontsize=11)
        axes = figure.subplots(1, 3 if has_lengths else 2)
        for ax, key, across in ((axes[0], "step", "steps"), (axes[1], "seconds", "seconds of training")):
            curves = {
                name: (average(run["curve"][key] for run in own), average(run["curve"]["score"] for run in own))
                for name, own in runs.items()
            }
            draw_lines(ax, curves, across, f"{metric} in validation")
            if results["goal"] is not None:
                ax.axhline(results["goal"], color="black", linewidth=0.6, linestyle=":")
        axes[0].set_title("step by step", fontweight="bold")
        axes[1].set_title("by the clock", fontweight="bold")
        if has_lengths:
            series = {
                name: (average(column(run, "words") for run in own), average(column(run, "bleu") for run in own))
                for name, own in runs.items()
            }
            draw_lines(axes[2], series, "words of the source", "BLEU on the test")
            axes[2].set_title("by the length of the sentence", fontweight="bold")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(runs))
    return Path(path)


def column(run: Mapping[str, Any], key: str) -> list[float]:
    return [group[key] for group in run["by_length"]]


def average(seeds: Any) -> Sequence[float]:
    """Point by point; beyond the shortest, seeds have nothing in common."""
    return [mean(values) for values in zip(*seeds)]

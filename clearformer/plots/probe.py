"""Plot the accuracy of linear probes by layer."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from clearformer.plots.lines import draw_lines
from clearformer.plots.style import MUTED, saved_figure
from clearformer.wording import count


def probe_figures(data: Mapping[str, Any]) -> dict[str, Callable[[Path], Path]]:
    return {f"accuracy on {count(data['n_test'], 'held-out text')}": partial(plot_probe, data)}


def plot_probe(data: Mapping[str, Any], path: Path | str) -> Path:
    """Plot the data returned by `clearformer.lens.probe.probe`."""
    layers = data["layers"]
    places = range(len(layers))
    with saved_figure(path, max(5.5, 0.6 * len(layers) + 2.5), 4.2) as figure:
        figure.suptitle(data["title"], fontsize=11)
        ax = figure.subplots()
        lines = {
            "linear probe": (places, [layer["accuracy"] for layer in layers]),
            "control: shuffled labels": (places, [layer["control"] for layer in layers]),
        }
        draw_lines(ax, lines, "", f"accuracy on {count(data['n_test'], 'held-out text')}")
        ax.axhline(data["majority"], color=MUTED, linestyle="--", linewidth=1, label="largest class")
        names = [layer["name"] for layer in layers]
        ax.set_xticks(places, names, rotation=45, ha="right", rotation_mode="anchor")
        ax.set_ylim(0, 1.02)
        ax.legend()
    return Path(path)

"""Plot the words nearest to a word or to a sum of words, one bar for each, the most similar on top."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearformer.plots.lettering import lettering, make_visible
from clearformer.plots.style import BLUE, MUTED, saved_figure


def plot_neighbours(data: Mapping[str, Any], path: Path | str) -> Path:
    """Plot the values of `clearformer.lens.neighbours`. A bar is a cosine, which ends at 1."""
    cosines, (families, words) = data["cosines"], lettering([make_visible(token) for token in data["tokens"]])
    places = range(len(words))
    with saved_figure(path, 5.5, max(1.8, 0.24 * len(words) + 1.2)) as figure:
        figure.suptitle(data["title"], fontsize=11)
        ax = figure.subplots()
        bars = ax.barh(places, cosines, height=0.6, color=BLUE)
        ax.bar_label(
            bars, [f"{cosine:.3f}".replace("-", "−") for cosine in cosines], padding=3, fontsize=8, color=MUTED
        )
        ax.set_yticks(places, words, fontfamily=families)
        ax.invert_yaxis()
        ax.set(xlabel="cosine with the word or sum", xlim=(min([0.0, *cosines]), 1))
        ax.grid(axis="x")
        ax.set_axisbelow(True)
    return Path(path)

"""Plot the tree of beam search: one column per step, the extensions from the best down, and lines to their parents."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearformer.plots.lettering import lettering, make_visible
from clearformer.plots.style import BLUE, INK, MUTED, ORANGE, RULE, saved_figure

INKS = {"kept": INK, "finished": BLUE, "unfinished": INK, "dropped": MUTED}


def plot_beam_tree(data: Mapping[str, Any], path: Path | str) -> Path:
    """Plot the values of `lens.beam_tree`. Orange: the path to the translation; boxes: finished; grey: dropped."""
    steps, best = data["steps"], set(data["best"])
    nodes = [(x, -y, node) for x, step in enumerate(steps) for y, node in enumerate(step)]
    places = {node["id"]: (x, y) for x, y, node in nodes}
    families, words = lettering([make_visible(node["token"]) for _, _, node in nodes])
    n_rows, cell = max(map(len, steps)), 0.075 * max([6, *map(len, words)]) + 0.35
    result = data["results"][0]
    title_families, [title] = lettering([f"{data['title']}: {result['text']}"])
    with saved_figure(path, max(4.0, cell * len(steps) + 0.4), 0.3 * n_rows + 1.0) as figure:
        ax = figure.subplots()
        for (x, y, node), word in zip(nodes, words, strict=True):
            is_best, fate = node["id"] in best, node["fate"]
            if node["parent"] is not None:
                before = places[node["parent"]]
                ax.plot(
                    [before[0] + 0.3, x - 0.3],
                    [before[1], y],
                    color=ORANGE if is_best else RULE if fate == "dropped" else MUTED,
                    linewidth=1.6 if is_best else 0.7,
                    zorder=2 if is_best else 1,
                )
            box = {"boxstyle": "round,pad=0.2", "facecolor": "white"}
            box["edgecolor"] = (ORANGE if is_best else BLUE) if fate == "finished" else "white"
            label = f"{word} {node['score']:.2f}"
            ink = ORANGE if is_best else INKS[fate]
            ax.text(
                x, y, label, ha="center", va="center", fontsize=7, color=ink, fontfamily=families, bbox=box, zorder=3
            )
        ax.set(xlim=(-0.6, len(steps) - 0.4), ylim=(-n_rows + 0.4, 0.6), yticks=[])
        ax.set_xticks(range(len(steps)), [f"{x + 1}" for x in range(len(steps))])
        ax.set_xlabel("step; the extensions from the best score down. Boxes are finished, grey is dropped")
        ax.spines[:].set(visible=False)
        ax.tick_params(length=0)
        figure.suptitle(title, fontfamily=title_families, fontsize=10)
    return Path(path)

"""Gradients against distance, before and after training, from two beginnings; and one that explodes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearformer.plots.lines import by_logarithm, draw_lines
from clearformer.plots.style import picture


def plot_gradients(numbers: Mapping[str, Any], path: Path | str) -> Path:
    """Draw what `clearformer.claims.gradients.watch` gives."""
    clipping = numbers["clipping"]
    with picture(path, 12.5, 7) as figure:
        figure.suptitle(numbers["title"], fontsize=11)
        axes = figure.subplots(2, 3)
        every = [line for states in numbers["norms"].values() for lines in states.values() for line in lines.values()]
        limits = min(map(min, every)), max(map(max, every))
        for row, (start, states) in zip(axes, numbers["norms"].items()):
            for ax, (state, lines) in zip(row, states.items()):
                series = {name: (range(len(line)), line) for name, line in lines.items()}
                draw_lines(ax, series, "distance t − k, letters", "norm of ∂h_t/∂h_k")
                by_logarithm(ax)
                ax.set_ylim(*limits)
                ax.set_title(f"{start} initialisation, {state}", fontweight="bold")
        for ax, key, up in ((axes[0, 2], "norm", "norm of the gradient"), (axes[1, 2], "loss", "loss, nats a letter")):
            runs = {f"{how} clipping": clipping[how][key] for how in ("with", "without")}
            draw_lines(ax, {how: (range(1, len(values) + 1), values) for how, values in runs.items()}, "step", up)
            ax.set_title(f"an RNN that begins at {clipping['gain']:g} times a rotation", fontweight="bold")
            ax.legend()
        by_logarithm(axes[0, 2])
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(lines))
    return Path(path)

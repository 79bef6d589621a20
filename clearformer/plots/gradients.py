"""Plot gradient norms against distance, for two initialisations, before and after training; and exploding gradients."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearformer.plots.lines import by_logarithm, draw_lines
from clearformer.plots.style import saved_figure


def plot_gradients(data: Mapping[str, Any], path: Path | str) -> Path:
    """Plot the data returned by `clearformer.claims.gradients.watch`."""
    clipping = data["clipping"]
    with saved_figure(path, 12.5, 7) as figure:
        figure.suptitle(data["title"], fontsize=11)
        axes = figure.subplots(2, 3)
        curves = [line for states in data["norms"].values() for lines in states.values() for line in lines.values()]
        limits = min(value for line in curves for value in line if value > 0), max(map(max, curves))
        for row, (start, states) in zip(axes, data["norms"].items()):
            for ax, (state, lines) in zip(row, states.items()):
                series = {name: (range(len(line)), line) for name, line in lines.items()}
                draw_lines(ax, series, "distance t − k, letters", "norm of ∂h_t/∂h_k")
                by_logarithm(ax)
                ax.set_ylim(*limits)
                ax.set_title(f"{start} initialisation, {state}", fontweight="bold")
        for ax, key, up in ((axes[0, 2], "norm", "gradient norm"), (axes[1, 2], "loss", "loss, nats per letter")):
            runs = {f"{how} clipping": clipping[how][key] for how in ("with", "without")}
            draw_lines(ax, {how: (range(1, len(values) + 1), values) for how, values in runs.items()}, "step", up)
            ax.set_title(f"RNN initialised with {clipping['gain']:g} × a rotation", fontweight="bold")
            ax.legend()
        by_logarithm(axes[0, 2])
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(lines))
    return Path(path)

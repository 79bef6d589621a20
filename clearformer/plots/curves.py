"""How a training run went: a small panel for each quantity, all over the same steps."""

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, MaxNLocator

from clearformer.errors import DataError
from clearformer.plots.style import BLUE, MUTED, ORANGE, picture


class Line(NamedTuple):
    """One key of the records of one kind."""

    kind: str
    key: str


# Validation is rarer than training, so that its points show.
LOOKS: dict[str, dict[str, Any]] = {
    "train": {"label": "training", "color": BLUE, "linewidth": 1.2},
    "valid": {"label": "validation", "color": ORANGE, "linewidth": 1.2, "marker": "o", "markersize": 3},
}
PANELS = {
    "Loss": (Line("train", "loss"), Line("valid", "loss")),
    "BLEU": (Line("valid", "bleu"),),
    "Perplexity": (Line("valid", "perplexity"),),
    "Accuracy": (Line("valid", "accuracy"),),
    "Word error rate": (Line("valid", "wer"),),
    "Learning rate": (Line("train", "lr"),),
    "Gradient norm": (Line("train", "grad_norm"),),
    "Tokens per second": (Line("train", "tokens_per_s"),),
    "Examples per second": (Line("train", "examples_per_s"),),
    "Images per second": (Line("train", "images_per_s"),),
}


def plot_curves(metrics: Sequence[Mapping[str, Any]], path: Path | str) -> Path:
    """Draw the records of a run, the lines of its metrics.jsonl: {"step": 20, "kind": "train", "loss": 6.1, ...}.

    A panel that no record has a value for is left out. The numbers beside titles and lines are the last values.
    Values that are not finite leave a gap in their line.
    """
    panels = {
        title: drawn
        for title, lines in PANELS.items()
        if (drawn := [(line, *points) for line in lines if (points := series(metrics, line))[0]])
    }
    if not panels:
        keys = ", ".join(f"{line.kind} {line.key}" for lines in PANELS.values() for line in lines)
        raise DataError(f"nothing to draw: none of the {len(metrics)} records has a known key", f"known are: {keys}")
    columns = 2 if len(panels) == 4 else min(len(panels), 3)
    rows = ceil(len(panels) / columns)
    with picture(path, 3.2 * columns, 2.3 * rows) as figure:
        axes = list(figure.subplots(rows, columns, squeeze=False, sharex=True).flat)
        for ax, (title, drawn) in zip(axes, panels.items()):
            draw_panel(ax, title, drawn)
        for blank in axes[len(panels) :]:
            blank.remove()
        figure.supxlabel("step", fontsize=8, color=MUTED)
    return Path(path)


def series(metrics: Sequence[Mapping[str, Any]], line: Line) -> tuple[list[int], list[float]]:
    """The steps at which a line has a value, and its values there."""
    records = [r for r in metrics if r["kind"] == line.kind and r.get(line.key) is not None]
    return [r["step"] for r in records], [float(r[line.key]) for r in records]


def draw_panel(ax: Axes, title: str, drawn: Sequence[tuple[Line, list[int], list[float]]]) -> None:
    """One panel: its lines, a grid to read heights by, and each line's last value."""
    thousands = any(value >= 1000 for *_, values in drawn for value in values)
    write = "{:,.0f}".format if thousands else "{:.3g}".format
    for line, steps, values in drawn:
        look = LOOKS[line.kind] | ({"marker": "o"} if len(steps) == 1 else {})
        ax.plot(steps, values, **look | {"label": f"{look['label']} {write(values[-1])}"})
    ax.set_title(title, fontweight="bold")
    if len(drawn) > 1:
        ax.legend()
    else:
        ax.set_title(write(values[-1]), loc="right", color=MUTED, fontsize=8)
    ax.grid(axis="y")
    ax.set_xlim(left=0)
    ax.tick_params(labelbottom=True)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10], integer=True))
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.yaxis.set_major_formatter(EngFormatter(sep="") if thousands else "{x:g}")

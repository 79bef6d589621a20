"""Plot the curves of a run: one panel per quantity, over the same steps."""

from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, MaxNLocator

from clearformer.errors import DataError
from clearformer.plots.style import BLUE, MUTED, ORANGE, saved_figure
from clearformer.wording import count


class Line(NamedTuple):
    """A line of a panel: the values of `key` in the records of one `kind`, train or valid."""

    kind: str
    key: str


# Validations are rare enough to mark each of them.
STYLES: dict[str, dict[str, Any]] = {
    "train": {"label": "training", "color": BLUE, "linewidth": 1.2},
    "valid": {"label": "validation", "color": ORANGE, "linewidth": 1.2, "marker": "o", "markersize": 3},
}
SPEED = "_per_s"  # the suffix of keys for speeds


def plot_curves(
    metrics: Sequence[Mapping[str, Any]], path: Path | str, panels: Mapping[str, str] | None = None
) -> Path:
    """Plot the records in the metrics.jsonl of a run: {"step": 20, "kind": "train", "loss": 6.1, ...}.

    `panels` maps the titles of validation metrics to their keys: {"BLEU": "bleu"}. By default, every metric of the
    records is drawn, with its key as title. Panels without values are left out. Titles and legends show the last value
    of each line. Values that are not finite leave a gap in their line.
    """
    filled = {
        title: drawn
        for title, lines in layout(metrics, panels).items()
        if (drawn := [(line, *points) for line in lines if (points := series(metrics, line))[0]])
    }
    if not filled:
        known = f"train loss, valid loss, train lr, train grad_norm, train …{SPEED}, and the metrics of valid"
        raise DataError(
            f"nothing to plot: no recognised keys in {count(len(metrics), 'record')}",
            f"the recognised keys are {known}",
        )
    columns = 2 if len(filled) == 4 else min(len(filled), 3)
    rows = ceil(len(filled) / columns)
    with saved_figure(path, 3.2 * columns, 2.3 * rows) as figure:
        axes = list(figure.subplots(rows, columns, squeeze=False, sharex=True).flat)
        for ax, (title, drawn) in zip(axes, filled.items()):
            draw_panel(ax, title, drawn)
        for blank in axes[len(filled) :]:
            blank.remove()
        figure.supxlabel("step", fontsize=8, color=MUTED)
    return Path(path)


def layout(metrics: Sequence[Mapping[str, Any]], panels: Mapping[str, str] | None) -> dict[str, list[Line]]:
    """Return the lines of each panel, in order: loss, validation metrics, learning rate, gradient norm, speed."""
    if panels is None:
        panels = {key: key for key in keys_of(metrics, "valid")}
    validation = {title: [Line("valid", key)] for title, key in panels.items() if key != "loss"}
    speeds = [key for key in keys_of(metrics, "train") if key.endswith(SPEED)]
    return {
        "Loss": [Line("train", "loss"), Line("valid", "loss")],
        **validation,
        "Learning rate": [Line("train", "lr")],
        "Gradient norm": [Line("train", "grad_norm")],
        **{f"{key.removesuffix(SPEED).capitalize()} per second": [Line("train", key)] for key in speeds},
    }


def keys_of(metrics: Sequence[Mapping[str, Any]], kind: str) -> list[str]:
    """Return the keys in the records of one kind, in order of first appearance."""
    keys = dict.fromkeys(key for record in metrics if record["kind"] == kind for key in record)
    return [key for key in keys if key not in ("step", "kind")]


def series(metrics: Sequence[Mapping[str, Any]], line: Line) -> tuple[list[int], list[float]]:
    """Return the steps at which a line has values, and these values."""
    records = [r for r in metrics if r["kind"] == line.kind and r.get(line.key) is not None]
    return [r["step"] for r in records], [float(r[line.key]) for r in records]


def draw_panel(ax: Axes, title: str, drawn: Sequence[tuple[Line, list[int], list[float]]]) -> None:
    """Draw one panel: its lines with their last values, and a horizontal grid."""
    thousands = any(value >= 1000 for *_, values in drawn for value in values)
    write = "{:,.0f}".format if thousands else "{:.3g}".format
    for line, steps, values in drawn:
        style = STYLES[line.kind] | ({"marker": "o"} if len(steps) == 1 else {})
        ax.plot(steps, values, **style | {"label": f"{style['label']} {write(values[-1])}"})
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

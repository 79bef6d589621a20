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
SPEED = "_per_s"  # what the keys of speeds end in


def plot_curves(
    metrics: Sequence[Mapping[str, Any]], path: Path | str, panels: Mapping[str, str] | None = None
) -> Path:
    """Draw the records of a run, the lines of its metrics.jsonl: {"step": 20, "kind": "train", "loss": 6.1, ...}.

    `panels` gives the title and the key of each validation score to draw, {"BLEU": "bleu"}; every score of the records,
    titled by its key, if not given. A panel that no record has a value for is left out. The numbers beside titles and
    lines are the last values. Values that are not finite leave a gap in their line.
    """
    found = {
        title: drawn
        for title, lines in layout(metrics, panels).items()
        if (drawn := [(line, *points) for line in lines if (points := series(metrics, line))[0]])
    }
    if not found:
        known = f"train loss, valid loss, train lr, train grad_norm, train …{SPEED}, and the scores of valid"
        raise DataError(f"nothing to draw: none of the {len(metrics)} records has a known key", f"known are: {known}")
    columns = 2 if len(found) == 4 else min(len(found), 3)
    rows = ceil(len(found) / columns)
    with picture(path, 3.2 * columns, 2.3 * rows) as figure:
        axes = list(figure.subplots(rows, columns, squeeze=False, sharex=True).flat)
        for ax, (title, drawn) in zip(axes, found.items()):
            draw_panel(ax, title, drawn)
        for blank in axes[len(found) :]:
            blank.remove()
        figure.supxlabel("step", fontsize=8, color=MUTED)
    return Path(path)


def layout(metrics: Sequence[Mapping[str, Any]], panels: Mapping[str, str] | None) -> dict[str, list[Line]]:
    """The lines of each panel, in order: the loss, the validation scores, then how the training went."""
    if panels is None:
        panels = {key: key for key in keys_of(metrics, "valid")}
    scores = {title: [Line("valid", key)] for title, key in panels.items() if key != "loss"}
    speeds = [key for key in keys_of(metrics, "train") if key.endswith(SPEED)]
    return {
        "Loss": [Line("train", "loss"), Line("valid", "loss")],
        **scores,
        "Learning rate": [Line("train", "lr")],
        "Gradient norm": [Line("train", "grad_norm")],
        **{f"{key.removesuffix(SPEED).capitalize()} per second": [Line("train", key)] for key in speeds},
    }


def keys_of(metrics: Sequence[Mapping[str, Any]], kind: str) -> list[str]:
    """What the records of one kind measure, in the order of its first appearance."""
    keys = dict.fromkeys(key for record in metrics if record["kind"] == kind for key in record)
    return [key for key in keys if key not in ("step", "kind")]


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

"""Plot a sweep: the validation metric of every trial against each setting that was varied."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearformer.plots.style import COLOURS, saved_figure

MAX_PANELS = 4  # in a row


def plot_sweep(results: Mapping[str, Any], path: Path | str) -> Path:
    """Plot the results of `clearformer.sweep`, with a panel for each setting. The best trial is marked."""
    rows = [row for row in results["table"] if row.get("score") is not None]
    keys = list(dict.fromkeys(key for row in rows for key in row["settings"]))
    default = next((row["score"] for row in rows if not row["settings"]), None)
    n_columns = max(1, min(MAX_PANELS, len(keys)))
    n_rows = max(1, -(-len(keys) // n_columns))
    with saved_figure(path, 3.2 * n_columns + 0.8, 3.2 * n_rows + 0.4) as figure:
        figure.suptitle(results["title"], fontsize=10)
        for ax, key in zip(figure.subplots(n_rows, n_columns, squeeze=False).flat, keys):
            draw_panel(ax, key, [row for row in rows if key in row["settings"]], default)
            ax.set_ylabel(f"validation {results['metric']}")
    return Path(path)


def draw_panel(ax: Any, key: str, rows: list[Mapping[str, Any]], default: float | None) -> None:
    values = [row["settings"][key] for row in rows]
    is_number = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    names = sorted({str(value) for value in values})
    across = values if is_number else [names.index(str(value)) for value in values]
    if is_number and min(across) > 0 and max(across) / min(across) >= 10:
        ax.set_xscale("log")
    for i, (x, row) in enumerate(zip(across, rows)):
        is_complete = row.get("is_complete", True)
        ax.scatter([x], [row["score"]], s=60 if i == 0 else 25, color=COLOURS[0], alpha=1.0 if is_complete else 0.4)
    if default is not None:
        ax.axhline(default, color="black", linewidth=0.6, linestyle=":")
        ax.annotate("default", (0.99, default), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=8)
    if not is_number:
        ax.set_xticks(range(len(names)), names)
    ax.set_xlabel(key)

"""The common style of all figures: colours, matplotlib settings, and saving."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from clearformer.disk import atomically
from clearformer.errors import ConfigError

INK, MUTED, RULE = "#2b2d33", "#7a7e87", "#e4e6ea"
BLUE, ORANGE = "#2f5d8c", "#d9822b"  # distinguishable in greyscale and for colour-blind readers
COLOURS = (BLUE, ORANGE, "#3a8f6a", "#b5423c", "#8067a9", "#5fa8d3", "#d58bb0", INK)

STYLE: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,  # a token such as $x$ is not a formula
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 9,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "figure.constrained_layout.h_pad": 0.08,  # inches
    "svg.hashsalt": "clearformer",  # without a date, the same data gives the same SVG
}


def suffix_of(path: Path | str) -> str:
    """Return the file type of a figure, png or svg, from its name."""
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("png", "svg"):
        raise ConfigError(f"{path}: unsupported file type for a figure", "use a name that ends in .png or .svg")
    return kind


@contextmanager
def saved_figure(path: Path | str, width: float, height: float) -> Iterator[Figure]:
    """Provide an empty figure of `width` × `height` inches, and save it to `path` when the context ends.

    The suffix of the path selects PNG or SVG. pyplot is not used, so that no figure stays open or is shared by threads.
    """
    path, kind = Path(path), suffix_of(path)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        with atomically(path) as draft:
            figure.savefig(draft, format=kind, dpi=160, metadata={"Date": None} if kind == "svg" else None)

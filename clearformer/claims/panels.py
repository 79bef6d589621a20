"""The panels of a figure as plain values, for plots/panels.py."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any


def panel(
    title: str, across: str, up: str, series: Mapping[str, Sequence[float]], x: Sequence[float], is_log: bool = False
) -> dict[str, Any]:
    """Return a panel whose lines share x. Values that cannot be drawn become None: not finite, or 0 by logarithm."""
    lines = {
        name: [list(x), [value if isfinite(value) and (value > 0 or not is_log) else None for value in values]]
        for name, values in series.items()
    }
    return {"title": title, "across": across, "up": up, "is_log": is_log, "series": lines}


def mean_over(runs: Sequence[Sequence[float]]) -> list[float]:
    """Return the mean over runs at each point."""
    return [sum(values) / len(values) for values in zip(*runs)]

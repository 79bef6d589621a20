"""Draw contour lines of a surface."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

FAINT = "#c9ced6"


def draw_contours(ax: Axes, surface: Mapping[str, Any]) -> None:
    """Draw lines of equal height for a grid `height` (y, x), denser towards the lowest point."""
    x, y, heights = (np.array(surface[key]) for key in ("x", "y", "height"))
    levels = heights.min() + np.ptp(heights) * np.linspace(0, 1, 16) ** 2
    ax.contour(x, y, heights, levels, colors=FAINT, linewidths=0.7, linestyles="solid")
    ax.set(xlabel="x", ylabel="y", xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))

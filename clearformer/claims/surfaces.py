"""Three surfaces that are hard to minimise, each for a different reason.

ravine     f = (x² + 25 y²) / 2             one learning rate for two directions: too fast across or too slow along
saddle     f = (x² − y²) / 2 + y⁴ / 4       almost no slope at the saddle, where the descent begins
plateau    f = 1 − exp(−(x² + y²) / 2)      almost no slope at the start
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

GRID = 61  # grid points per side, for the contours


class Place(NamedTuple):
    equation: str
    height: Callable[[Tensor, Tensor], Tensor]
    start: tuple[float, float]
    lowest: float  # lowest height
    window: tuple[float, float, float, float]  # left, right, bottom, top


PLACES = {
    "ravine": Place(
        equation="(x² + 25y²) / 2",
        height=lambda x, y: (x**2 + 25 * y**2) / 2,
        start=(-4.0, 1.0),
        lowest=0.0,
        window=(-4.6, 1.6, -1.5, 1.5),
    ),
    "saddle": Place(
        equation="(x² − y²) / 2 + y⁴ / 4",
        height=lambda x, y: (x**2 - y**2) / 2 + y**4 / 4,
        start=(-1.6, 1e-3),
        lowest=-0.25,
        window=(-1.9, 0.9, -1.4, 1.4),
    ),
    "plateau": Place(
        equation="1 − exp(−(x² + y²) / 2)",
        height=lambda x, y: 1 - (-(x**2 + y**2) / 2).exp(),
        start=(-2.6, 1.9),
        lowest=0.0,
        window=(-3.2, 1.4, -1.6, 2.4),
    ),
}


def contours(place: Place) -> dict[str, Any]:
    left, right, bottom, top = place.window
    x, y = torch.linspace(left, right, GRID), torch.linspace(bottom, top, GRID)
    return {"x": x.tolist(), "y": y.tolist(), "height": place.height(x[None, :], y[:, None]).tolist()}

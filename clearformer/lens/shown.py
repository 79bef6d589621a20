"""Pictures as plain numbers, for whoever draws or prints them."""

from typing import Any

import numpy as np


def shown(pixels: np.ndarray) -> list[Any]:
    """uint8 (N, C, Y, X) -> N pictures (Y, X), of greys, or (Y, X, 3)."""
    return [picture[0].tolist() if len(picture) == 1 else picture.transpose(1, 2, 0).tolist() for picture in pixels]

"""Images as nested lists, for figures and JSON."""

from typing import Any

import numpy as np


def shown(pixels: np.ndarray) -> list[Any]:
    """uint8 (N, C, Y, X) -> N images: (Y, X) in grey, or (Y, X, 3)."""
    return [image[0].tolist() if len(image) == 1 else image.transpose(1, 2, 0).tolist() for image in pixels]

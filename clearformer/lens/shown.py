"""Convert images to nested lists, for figures and JSON."""

from typing import Any

import numpy as np


def shown(pixels: np.ndarray) -> list[Any]:
    """Convert uint8 pixels (N, C, Y, X) to a list of N images: (Y, X) if grey, (Y, X, 3) if in colour."""
    return [image[0].tolist() if len(image) == 1 else image.transpose(1, 2, 0).tolist() for image in pixels]

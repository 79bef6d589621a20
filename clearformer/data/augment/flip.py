"""Left and right change places: x̃(y, x) = x(y, X − 1 − x), one half of the time."""

import torch
from torch import Tensor


def flip(pixels: Tensor) -> Tensor:
    """(B, C, Y, X) -> the same."""
    is_flipped = torch.rand(len(pixels), 1, 1, 1, device=pixels.device) < 0.5
    return torch.where(is_flipped, pixels.flip(3), pixels)

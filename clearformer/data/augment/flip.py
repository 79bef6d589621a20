"""Horizontal flip with probability 1/2: x̃(y, x) = x(y, X − 1 − x)."""

import torch
from torch import Tensor


def flip(pixels: Tensor) -> Tensor:
    """Flip each image of pixels (B, C, Y, X) horizontally with probability 1/2."""
    is_flipped = torch.rand(len(pixels), 1, 1, 1, device=pixels.device) < 0.5
    return torch.where(is_flipped, pixels.flip(3), pixels)

"""Random erasing: replace a rectangle by noise, so that a model cannot rely on one region (Zhong et al. 2020).

area s · Y X,  s ~ U(0.02, 0.4);   height / width  r ~ exp U(log 0.3, log 1/0.3);   uniform position inside the image
"""

from math import log

import torch
from torch import Tensor

AREA, ASPECT = (0.02, 0.4), 0.3


def erase(pixels: Tensor, probability: float) -> Tensor:
    """Erase a random rectangle of each image in pixels, uint8 (B, C, Y, X), with the given probability."""
    B, _, Y, X = pixels.shape
    draw, area, aspect, top, left = torch.rand(5, B, 1, device=pixels.device)
    area, aspect = AREA[0] + (AREA[1] - AREA[0]) * area, torch.exp((2 * aspect - 1) * log(ASPECT))
    height = (Y * (area * aspect).sqrt()).round().clamp(1, Y)
    width = (X * (area / aspect).sqrt()).round().clamp(1, X)
    rows = between(top, height, Y) & (draw < probability)  # (B, Y)
    erased = rows[:, None, :, None] & between(left, width, X)[:, None, None, :]  # (B, 1, Y, X)
    return torch.where(erased, torch.randint_like(pixels, 256), pixels)


def between(at: Tensor, length: Tensor, size: int) -> Tensor:
    """Return a mask (B, size), True on an interval of `length`; `at` in [0, 1) selects one of the possible starts."""
    start = (at * (size - length + 1)).floor()
    index = torch.arange(size, device=at.device)
    return (index >= start) & (index < start + length)

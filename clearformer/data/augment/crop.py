"""Random crop: shift an image by a few pixels, with black borders. x̃(y, x) = x(y + δ_y, x + δ_x), δ ~ U{−n … n}."""

import torch
import torch.nn.functional as F
from torch import Tensor


def crop(pixels: Tensor, n: int) -> Tensor:
    """Pad each image of pixels (B, C, Y, X) with n pixels on every side, and return a random crop of its old size."""
    B, C, Y, X = pixels.shape
    index = [torch.arange(size, device=pixels.device) for size in (B, C, Y, X)]
    down, right = torch.randint(0, 2 * n + 1, (2, B, 1), device=pixels.device)
    rows, columns = (index[2] + down)[:, None, :, None], (index[3] + right)[:, None, None, :]
    return F.pad(pixels, [n] * 4)[index[0][:, None, None, None], index[1][None, :, None, None], rows, columns]

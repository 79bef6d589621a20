"""A picture moved by a few pixels, black where nothing was: x̃(y, x) = x(y + δ_y, x + δ_x), δ uniform in −n … n."""

import torch
import torch.nn.functional as F
from torch import Tensor


def crop(pixels: Tensor, n: int) -> Tensor:
    """(B, C, Y, X) -> the same. A random crop of the picture with n pixels of padding around it."""
    B, C, Y, X = pixels.shape
    index = [torch.arange(size, device=pixels.device) for size in (B, C, Y, X)]
    down, right = torch.randint(0, 2 * n + 1, (2, B, 1), device=pixels.device)
    rows, columns = (index[2] + down)[:, None, :, None], (index[3] + right)[:, None, None, :]
    return F.pad(pixels, [n] * 4)[index[0][:, None, None, None], index[1][None, :, None, None], rows, columns]

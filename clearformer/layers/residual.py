"""Residual blocks, which learn the difference between their output and their input (He et al. 2016).

    y = relu(f(x) + shortcut(x))

    basic        f: 3×3, 3×3
    bottleneck   f: 1×1 to a quarter of the channels, 3×3, 1×1 back             the 3×3 has the stride

If f keeps the shape, the shortcut is x itself. Otherwise:

    projection   norm(W x), a 1×1 with the same stride                          option B of the paper
    padding      every S-th pixel, and zeros for the new channels               option A, without parameters
    none         no shortcut, not even where f keeps the shape: the plain network, y = relu(f(x))
"""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.layers.conv import Conv

BlockKind = Literal["basic", "bottleneck"]
N_CONVS: dict[BlockKind, int] = {"basic": 2, "bottleneck": 3}
Shortcut = Literal["projection", "padding", "none"]


class Residual(nn.Module):
    """A residual block with stride S, (B, C, Y, X) -> (B, O, Y/S, X/S)."""

    is_block = True  # compiled as one unit

    def __init__(self, c_in: int, c_out: int, stride: int, block: BlockKind, shortcut: Shortcut) -> None:
        super().__init__()
        if block == "basic":
            path = [Conv(c_in, c_out, 3, stride), Conv(c_out, c_out, 3, relu=False)]
        else:
            narrow = c_out // 4
            path = [Conv(c_in, narrow, 1), Conv(narrow, narrow, 3, stride), Conv(narrow, c_out, 1, relu=False)]
        self.path = nn.Sequential(*path)
        self.shortcut: nn.Module | None = nn.Identity()
        if shortcut == "none":
            self.shortcut = None
        elif stride > 1 or c_in != c_out:
            is_learnt = shortcut == "projection"
            self.shortcut = Conv(c_in, c_out, 1, stride, relu=False) if is_learnt else Padded(c_out - c_in, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.path(x)
        return F.relu(y if self.shortcut is None else y + self.shortcut(x))


class Padded(nn.Module):
    """A shortcut without parameters: every S-th pixel of x (B, C, Y, X), between two groups of channels of zeros."""

    def __init__(self, n_new: int, stride: int) -> None:
        super().__init__()
        self.before, self.after, self.stride = n_new // 2, n_new - n_new // 2, stride

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.before, self.after))

"""Inception blocks: filters of several sizes in parallel (Szegedy et al. 2015, figure 2).

    y = [1×1(x) ; 3×3(1×1(x)) ; 5×5(1×1(x)) ; 1×1(maxpool(x))]          concatenated along the channels

The naive block has no 1×1 filters before the larger filters or after the pool. They save work: a 5×5 from 256
channels to 96 takes 256·25·96 = 614,400 multiplications per pixel, but after a 1×1 to 64 channels both together take
only 256·64 + 64·25·96 = 169,984.

Six channel counts define a block, as in table 1 of the paper: 1×1, 3×3 reduce, 3×3, 5×5 reduce, 5×5, pool projection.
A 0 omits a reduction or the projection; without the projection, the pool passes on all its channels.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

Mixture = tuple[int, int, int, int, int, int]


class Inception(nn.Module):
    """An Inception block, (B, C, Y, X) -> (B, O, Y, X). `conv` builds its filters; the largest have size `large`."""

    is_block = True  # compiled as one unit

    def __init__(self, c_in: int, mixture: Mixture, conv: Any, large: int = 5) -> None:
        super().__init__()
        one, reduce_three, three, reduce_five, five, project = mixture
        branch = partial(build_branch, c_in, conv=conv)
        self.one = conv(c_in, one, 1)
        self.three = branch(reduce_three, three, 3)
        self.five = branch(reduce_five, five, large)
        pool = nn.MaxPool2d(3, stride=1, padding=1)
        self.pool = nn.Sequential(pool, conv(c_in, project, 1)) if project else nn.Sequential(pool)
        self.channels = one + three + five + (project or c_in)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], dim=1)


def build_branch(c_in: int, reduce: int, c_out: int, size: int, conv: Any) -> nn.Sequential:
    if not reduce:
        return nn.Sequential(conv(c_in, c_out, size))
    return nn.Sequential(conv(c_in, reduce, 1), conv(reduce, c_out, size))

"""Several scales at once (Szegedy et al. 2015, figure 2).

    y = [1×1(x) ; 3×3(1×1(x)) ; 5×5(1×1(x)) ; 1×1(maxpool(x))]          side by side, as channels

The naive block has none of the 1×1 before the larger filters, nor after the pool. They pay: 5×5 from 256 channels to 96
takes 256·25·96 = 614,400 multiplications a place; through a bottleneck of 64, 256·64 + 64·25·96 = 169,984.

A block is six numbers, as in the paper's table 1: channels of 1×1, 3×3 reduce, 3×3, 5×5 reduce, 5×5, pool projection.
A 0 leaves out the reduction, or the projection, by which the pool hands on every channel.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

Mixture = tuple[int, int, int, int, int, int]


class Inception(nn.Module):
    """x (B, C, Y, X) -> (B, O, Y, X). `conv` makes its layers; `large` is the side of the largest filters."""

    is_block = True  # compiled by itself

    def __init__(self, c_in: int, mixture: Mixture, conv: Any, large: int = 5) -> None:
        super().__init__()
        one, reduce_three, three, reduce_five, five, project = mixture
        narrowed = partial(narrow, c_in, conv=conv)
        self.one = conv(c_in, one, 1)
        self.three = narrowed(reduce_three, three, 3)
        self.five = narrowed(reduce_five, five, large)
        pool = nn.MaxPool2d(3, stride=1, padding=1)
        self.pool = nn.Sequential(pool, conv(c_in, project, 1)) if project else nn.Sequential(pool)
        self.channels = one + three + five + (project or c_in)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pool(x)], dim=1)


def narrow(c_in: int, reduce: int, c_out: int, size: int, conv: Any) -> nn.Sequential:
    if not reduce:
        return nn.Sequential(conv(c_in, c_out, size))
    return nn.Sequential(conv(c_in, reduce, 1), conv(reduce, c_out, size))

"""Strided convolutions over time, which give a network fewer frames, each with the context around it.

h = gelu(norm(conv(x)))        filters of 5 frames; each layer keeps one frame in `stride`
"""

from collections.abc import Sequence
from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.layers.masks import within

WIDTH = 5


class Subsample(nn.Module):
    """x (B, T, D_in), lengths (B,) -> (B, T', D), lengths': divided by each stride, rounded up. Padding is zeroed."""

    def __init__(self, d_input: int, d_model: int, strides: Sequence[int], dropout: float) -> None:
        super().__init__()
        self.strides, self.dropout = tuple(strides), nn.Dropout(dropout)
        widths = pairwise([d_input, *(d_model for _ in strides)])
        self.convs = nn.ModuleList(
            nn.Conv1d(*sizes, WIDTH, stride, padding=WIDTH // 2) for sizes, stride in zip(widths, strides)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in strides)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        for conv, norm, stride in zip(self.convs, self.norms, self.strides):
            lengths = shortened(lengths, stride)
            x = self.dropout(F.gelu(norm(conv(x.mT).mT)))
            x = x * within(x.size(1), lengths)[:, :, None]  # zeros, as the convolution pads a row without padding
        return x, lengths


def shortened(lengths: Tensor, *strides: int) -> Tensor:
    for stride in strides:
        lengths = (lengths + stride - 1) // stride
    return lengths

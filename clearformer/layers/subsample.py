"""Strided convolutions over time, which leave fewer frames, each computed from several neighbouring ones.

h = gelu(norm(conv(x)))        filters of 5 frames; each layer keeps every `stride`-th frame
"""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from clearformer.layers.feedforward import gelu
from clearformer.layers.masks import within

WIDTH = 5


class Subsample(nn.Module):
    """Subsample x (B, T, D_in) with lengths (B,); returns (B, T', D) and the new lengths. Padding is zeroed.

    Each layer divides the lengths by its stride and rounds up.
    """

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
            x = self.dropout(gelu(norm(conv(x.mT).mT)))
            x = x * within(x.size(1), lengths)[:, :, None]  # zeros, with which the convolution pads the longest row
        return x, lengths


def shortened(lengths: Tensor, *strides: int) -> Tensor:
    for stride in strides:
        lengths = (lengths + stride - 1) // stride
    return lengths

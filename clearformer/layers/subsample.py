"""Convolutions over time before a network that reads frames: what is around each moment, and fewer moments.

h = gelu(norm(conv(x)))        5 frames wide, twice; the second keeps one moment of every `stride`
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH = 5


class Subsample(nn.Module):
    """x (B, T, D_in), lengths (B,) -> (B, ⌈T / stride⌉, D), lengths / stride rounded up. Padding changes nothing."""

    def __init__(self, d_input: int, d_model: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.stride, self.dropout = stride, nn.Dropout(dropout)
        self.convs = nn.ModuleList(
            nn.Conv1d(d_in, d_model, WIDTH, step, padding=WIDTH // 2)
            for d_in, step in ((d_input, 1), (d_model, stride))
        )
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in self.convs)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        for conv, norm, after in zip(self.convs, self.norms, (lengths, self.shortened(lengths))):
            x = F.gelu(norm(conv(x.mT).mT))
            real = torch.arange(x.size(1), device=x.device) < after[:, None]
            x = self.dropout(x) * real[:, :, None]  # zeros, as beyond the ends of a row that stands alone
        return x, self.shortened(lengths)

    def shortened(self, lengths: Tensor) -> Tensor:
        return (lengths + self.stride - 1) // self.stride

"""A convolution with an optional batch norm and relu.

    y_o(i, j) = relu(norm(Σ_c Σ_u,v W_oc(u, v) x_c(S i + u − P, S j + v − P) + b_o))

    norm(a) = γ (a − μ) / √(σ² + ε) + β        batch norm: μ, σ² of each channel over the batch and all pixels,
                                               at inference their running averages    Ioffe & Szegedy 2015

With a norm, b is omitted by default, because the norm would subtract it again and has a bias of its own, β.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.layers.geometry import same_padding


class Conv(nn.Module):
    """A convolution, (B, C, Y, X) -> (B, O, Y', X'). With stride 1, the default padding keeps height and width."""

    def __init__(
        self,
        c_in: int,
        c_out: int,
        size: int,
        stride: int = 1,
        padding: int | None = None,
        norm: bool = True,
        eps: float = 1e-5,
        relu: bool = True,
        bias: bool | None = None,
    ) -> None:
        super().__init__()
        padding = same_padding(size) if padding is None else padding
        conv = nn.Conv2d(c_in, c_out, size, stride, padding, bias=not norm if bias is None else bias)
        self.conv = conv.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # the pixels' layout
        self.norm = nn.BatchNorm2d(c_out, eps) if norm else None
        self.relu = relu

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        x = x if self.norm is None else self.norm(x)
        return F.relu(x) if self.relu else x

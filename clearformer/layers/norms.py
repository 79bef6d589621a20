"""Normalisation of the vector of each position, independent of batch and length.

    LayerNorm(x) = (x − μ) / √(σ² + ε) · γ + β,    μ, σ² over the D features      Ba et al. 2016
    RMSNorm(x)   =  x / √(mean(x²) + ε) · γ                                       Zhang & Sennrich 2019

Local response norm divides each value by its neighbours in other channels, at the same pixel of an image:

    b_c = a_c / (k + α Σ_d a_d²)^β,    d from c − n/2 to c + n/2                  Krizhevsky et al. 2012, section 3.3

The modules are torch's or derived from them; their kernels are fused. `layer_norm`, `rms_norm` and
`local_response_norm` are the equations in plain torch; the tests compare the modules with them. Batch norm, which
depends on the batch, is in token_norm.py.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from clearformer.layers.fixed_shapes import FIXED_SHAPES
from clearformer.layers.token_norm import TokenBatchNorm


class LayerNorm(nn.LayerNorm):
    """torch's LayerNorm, and a Triton kernel for recorded decoding steps: theirs is made for longer inputs."""

    def forward(self, x: Tensor) -> Tensor:
        return self.of_sum(x) if self.is_decoding(x) else super().forward(x)

    def of_sum(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        """Compute LayerNorm(x), or LayerNorm(x + y), in one kernel."""
        from clearformer.layers import triton_kernels

        return triton_kernels.add_and_norm(x, y, self.weight, self.bias, self.eps)

    def is_decoding(self, *inputs: Tensor) -> bool:
        """Whether the kernel can be used: in a decoding step on CUDA, whose shape recurs."""
        return (
            FIXED_SHAPES.has_triton
            and not torch.compiler.is_compiling()
            and not torch.is_grad_enabled()
            and not torch.is_autocast_enabled("cuda")
            and self.weight is not None
            and self.weight.dtype != torch.float64  # the kernel computes in float32
            and all(x.is_cuda and x.is_contiguous() and x.dtype == self.weight.dtype for x in inputs)
        )


def add_and_norm(norm: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Compute norm(x + y), as one kernel if possible."""
    if isinstance(norm, LayerNorm) and x.shape == y.shape and norm.is_decoding(x, y):
        return norm.of_sum(x, y)
    result: Tensor = norm(x + y)
    return result


# torch's default ε for RMSNorm is the machine epsilon of the input's dtype: 0.008 in bfloat16.
NORMS: dict[str, Callable[..., nn.Module]] = {
    "layer": LayerNorm,
    "rms": partial(nn.RMSNorm, eps=1e-6),
    "batch": TokenBatchNorm,
    "none": nn.Identity,
}


def layer_norm(x: Tensor, gain: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Normalise x (…, D). σ² is the biased variance (divided by D, not D − 1), as in the paper, unlike `Tensor.var`."""
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).square().mean(-1, keepdim=True)
    return (x - mean) / (variance + eps).sqrt() * gain + bias


def rms_norm(x: Tensor, gain: Tensor, eps: float = 1e-6) -> Tensor:
    """Normalise x (…, D) without subtracting the mean: re-scaling helps, re-centring does not."""
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * gain


def local_norm() -> nn.Module:
    """Build the norm of AlexNet: n = 5, k = 2, α = 1e-4, β = 0.75. torch divides α by n, so its α is 5e-4."""
    return nn.LocalResponseNorm(5, alpha=5e-4, beta=0.75, k=2.0)


def local_response_norm(x: Tensor, n: int = 5, k: float = 2.0, alpha: float = 1e-4, beta: float = 0.75) -> Tensor:
    """Normalise x (B, C, Y, X) across channels. The sums are cut off at the first and last channel."""
    C = x.size(1)
    sums = [x[:, max(0, c - n // 2) : c + n // 2 + 1].square().sum(1) for c in range(C)]
    return x / (k + alpha * torch.stack(sums, dim=1)) ** beta

"""Normalisation of each position's vector by itself, so that neither batch nor length matters.

    LayerNorm(x) = (x − μ) / √(σ² + ε) · γ + β,    μ, σ² over the D features      Ba et al. 2016
    RMSNorm(x)   =  x / √(mean(x²) + ε) · γ                                       Zhang & Sennrich 2019

The classes are torch's own, whose kernels are fused; `layer_norm` and `rms_norm` are the equations they are held to.
"""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

# RMSNorm's own ε, when none is given, is that of the input's type: in bfloat16 it would be 0.008.
NORMS: dict[str, Callable[..., nn.Module]] = {"layer": nn.LayerNorm, "rms": partial(nn.RMSNorm, eps=1e-6)}


def layer_norm(x: Tensor, gain: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """x (…, D); σ² is the biased variance (divided by D, not D − 1), as in the paper and unlike `Tensor.var`."""
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).square().mean(-1, keepdim=True)
    return (x - mean) / (variance + eps).sqrt() * gain + bias


def rms_norm(x: Tensor, gain: Tensor, eps: float = 1e-6) -> Tensor:
    """x (…, D). No mean is subtracted: re-scaling, not re-centring, is what helps."""
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * gain

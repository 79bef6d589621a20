"""Histograms of a tensor, computed on its device without waiting for it.

    n_b = number of x with low + b w ≤ x < low + (b + 1) w,  w = (high − low) / 32        the last bin includes high
    low, high = μ ± 4 σ within the smallest and the largest value                         μ, σ without outliers

The residual stream of a trained Transformer has a few values hundreds of times larger than the others. Bins up to the
largest value would hide all others in one, so values outside are only counted.
"""

from typing import Any

import torch
from torch import Tensor

BINS = 32
WIDTH = 4.0  # standard deviations on each side of the mean
DECADES = (-12.0, 4.0)  # of gradients, by log10: half a decade per bin


def histogram(x: Tensor) -> dict[str, Any]:
    """Count values in 32 bins, and the values outside. The results are tensors on the device of x."""
    x = x.detach().flatten().float()
    smallest, largest = x.aminmax()
    mean, std = x.mean(), x.std(correction=0)
    for _ in range(2):  # the second time without the outliers of the first
        is_inside = (x - mean).abs() <= WIDTH * std
        n = is_inside.sum()
        mean = x.where(is_inside, 0).sum() / n
        std = ((x - mean).where(is_inside, 0).square().sum() / n).sqrt()
    low, high = (mean - WIDTH * std).clamp(min=smallest), (mean + WIDTH * std).clamp(max=largest)
    counts = binned(x, low, high)
    return {
        "min": smallest,
        "max": largest,
        "low": low,
        "high": high,
        "counts": counts,
        "outside": len(x) - counts.sum(),
    }


def magnitudes(x: Tensor) -> dict[str, Any]:
    """Count log10 |x| in 32 bins of half a decade. Zeros and very small values are in the first bin."""
    low, high = DECADES
    x = x.detach().flatten().float().abs().clamp(min=10**low, max=10**high).log10()
    return {"low": low, "high": high, "counts": binned(x, low, high)}


def binned(x: Tensor, low: Tensor | float, high: Tensor | float) -> Tensor:
    """Count the values of each bin, (32,). Values outside are left out."""
    width = torch.as_tensor((high - low) / BINS).clamp(min=torch.finfo(torch.float32).tiny)
    bins = ((x - low) / width).clamp(0, BINS - 1).nan_to_num(BINS).where((x >= low) & (x <= high), BINS).long()
    return torch.bincount(bins, minlength=BINS + 1)[:BINS]  # not histc, which is not deterministic on CUDA


def as_json(one: dict[str, Any]) -> dict[str, Any]:
    return {key: value.tolist() if isinstance(value, Tensor) else value for key, value in one.items()}

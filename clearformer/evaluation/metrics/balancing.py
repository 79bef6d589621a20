"""Balancing: shift and scale the logits of a classifier so that they suit equally frequent classes.

    z'  = a (z + δ)
    δ*  = argmin_δ  Σ_i w_i − log softmax((z_i + δ) / s)[y_i]        w_i = 1 / (C n_k) for the class k = y_i
    a*  = argmin_a  Σ_i w_i − log softmax(a (z_i + δ*))[y_i]         1 / (10 s) ≤ a ≤ 10 / s

on validation data with n_k examples of class k. s is the standard deviation of the logits. This is bias-corrected
temperature scaling (Alexandari et al. 2020), except that the shift is fitted at a fixed scale: with a few examples of a
rare class, the best common scale may be 0 or negative, and all predictions would be the same or reversed.

A network that fits all its training data pushes the logits of other examples towards the frequent class, whatever the
weights or the prior in its loss. Only examples that it was not trained on show by how much.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

WIDEST = 10.0  # the largest factor between a and 1 / s


class Balancing(NamedTuple):
    """z' = scale · z + offset, with an offset (C,) for each class."""

    scale: float
    offset: Tensor

    def __call__(self, logits: Tensor) -> Tensor:
        """logits (N, C) -> (N, C)"""
        return self.scale * logits + self.offset.to(logits.dtype)

    def folded(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Change a linear layer, weight (C, D) and bias (C,), so that it computes z' instead of z."""
        return self.scale * weight, self.scale * bias + self.offset.to(bias)


def fit_balancing(logits: Tensor, labels: Tensor) -> Balancing:
    """Fit scale and offset on validation data. logits (N, C), labels (N,).

    A class without validation examples is shifted by the mean over the other classes.
    """
    z, counts = logits.double(), labels.bincount(minlength=logits.size(-1))
    present = counts.nonzero()[:, 0]
    s = float((z - z.mean(1, keepdim=True)).std(0).mean()) if len(z) > 1 else 0.0
    if len(present) < 2 or s == 0:
        return Balancing(1.0, z.new_zeros(z.size(-1)))
    z, seen = z - z.mean(), z[:, present] - z.mean()
    targets = torch.searchsorted(present, labels)
    weights = 1 / (len(present) * counts[labels])  # (N,)

    def loss(logits: Tensor) -> Tensor:
        return (F.cross_entropy(logits, targets, reduction="none") * weights).sum()

    means = torch.stack([seen[targets == k].mean(0) for k in range(len(present))]).mean(0)
    shift = minimise(lambda shift: loss((seen + shift) / s), -means)
    shift = shift - shift.mean()
    scale = float(minimise(lambda scale: loss(scale * (seen + shift)), z.new_tensor(1 / s)))
    scale = min(max(scale, 1 / (WIDEST * s)), WIDEST / s)
    offset = z.new_zeros(z.size(-1))
    offset[present] = shift
    return Balancing(scale, scale * offset)


def minimise(loss: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """Return the minimum of a smooth convex function, found by L-BFGS."""
    value = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS([value], max_iter=100, tolerance_grad=1e-9, line_search_fn="strong_wolfe")

    @torch.enable_grad()
    def closure() -> Tensor:
        optimizer.zero_grad()
        result = loss(value)
        result.backward()
        return result

    optimizer.step(closure)
    return value.detach()

"""How far two correct float32 computations of one thing may lie apart, on whatever processor.

Kernels add in different orders, with fused products or without, and each order rounds differently. What is promised
is a bound, and it follows from the arithmetic:

    |fl(Σ xᵢ yᵢ) − Σ xᵢ yᵢ| ≤ n u Σ |xᵢ yᵢ|, u = ε / 2        Higham 2002, Accuracy and Stability, eq. 3.5

so two such sums of n terms, each at most that far from the true one, differ by at most n ε Σ |xᵢ yᵢ|.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

EPS = torch.finfo(torch.float32).eps  # 1.2e-7, twice the largest relative error of one operation


def float32_bound(n_terms: int, magnitude: float) -> float:
    """n ε Σ|xᵢ yᵢ|, for two sums of `n_terms`; `magnitude` is Σ|xᵢ yᵢ|, or no less than it."""
    return n_terms * EPS * magnitude


def float32_bound_of(model: Any, run: Callable[[Any], Tensor], n_terms: int, draws: int = 3) -> float:
    """For whole networks, by their conditioning: how far the result moves when the weights move by n ε.

    A product W x that float32 computes is the exact (W + δ) x with |δ| ≤ n u |W| (Higham, eq. 3.12): rounding is a
    change of the weights. So a copy in float64, whose own rounding is nothing beside it, is run with every weight
    changed by ± n ε of itself, `n_terms` being those of the longest sum. Each of two computations may be off by that
    much; the largest of a few draws of signs stands for the worst. `run` says what is compared: logits, gradients.
    """
    exact, draw = copy.deepcopy(model).double(), torch.Generator().manual_seed(0)
    expected, moved = run(exact).detach(), 0.0
    for _ in range(draws):
        other = copy.deepcopy(exact)
        with torch.no_grad():
            for parameter in other.parameters():
                signs = torch.randint(2, parameter.shape, generator=draw) * 2 - 1
                parameter.mul_(1 + n_terms * EPS * signs)
        moved = max(moved, (run(other).detach() - expected).abs().max().item())
    return 2 * moved

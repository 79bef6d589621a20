"""How far two correct float32 computations of one thing may lie apart, on whatever processor.

Kernels add in different orders, with fused products or without, and each order rounds differently. What is promised
is a bound, and it follows from the arithmetic:

    |fl(Σ xᵢ yᵢ) − Σ xᵢ yᵢ| ≤ n u Σ |xᵢ yᵢ|, u = ε / 2        to first order; Higham 2002, Accuracy and Stability, 3.1

so two such sums of n terms, each at most that far from the true one, differ by at most n ε Σ |xᵢ yᵢ|.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

EPS = torch.finfo(torch.float32).eps  # 1.2e-7, twice the largest relative error of one operation


def float32_bound(n_terms: int, magnitude: float) -> float:
    """n ε Σ|xᵢ yᵢ|, for two sums of `n_terms`; `magnitude` is Σ|xᵢ yᵢ|, or no less than it."""
    return n_terms * EPS * magnitude


def float32_bounds(
    run: Callable[..., Sequence[Tensor]], n_terms: int, inputs: Sequence[Tensor], *given: Any
) -> list[float]:
    """For chains of sums, by their conditioning: how far each of run(inputs, *given) moves when the inputs move by n ε.

    A product W x that float32 computes is the exact (W + δ) x with |δ| ≤ n u |W| (Higham, 3.5): rounding is a change of
    what goes in. So copies in float64, whose own rounding is nothing beside it, are changed by ± n ε of themselves,
    `n_terms` being those of the longest sum. Each of two computations may be off by that much. Three draws of signs do
    not find the worst; but rounding draws its signs as well, and then grows by √n, so that 2 √n are in hand for this
    and for what is no product: norms, exponentials.
    """
    draw = torch.Generator().manual_seed(0)

    def results(by: int) -> list[Tensor]:
        signs = [torch.randint(2, x.shape, generator=draw) * 2 - 1 for x in inputs]
        moved = [x.detach().double() * (1 + by * EPS * sign) for x, sign in zip(inputs, signs)]
        return [y.detach() for y in run([x.requires_grad_() for x in moved], *given)]

    exact, draws = results(0), [results(n_terms) for _ in range(3)]
    return [max(2 * (y - x).abs().max().item() for y in moved) for x, *moved in zip(exact, *draws)]


def float32_bounds_of(model: Any, run: Callable[[Any], Sequence[Tensor]], n_terms: int) -> list[float]:
    """The same of a whole network: how far each of run(model) moves when every weight moves by n ε."""

    def moved(weights: list[Tensor]) -> Sequence[Tensor]:
        other = copy.deepcopy(model).double()
        with torch.no_grad():
            for parameter, weight in zip(other.parameters(), weights, strict=True):
                parameter.copy_(weight)
        return run(other)

    return float32_bounds(moved, n_terms, list(model.parameters()))


def float32_bound_of(model: Any, run: Callable[[Any], Tensor], n_terms: int) -> float:
    return float32_bounds_of(model, lambda other: [run(other)], n_terms)[0]


def assert_alike(model: Any, run: Callable[[Any], Sequence[Tensor]], expected: Sequence[Tensor], n_terms: int) -> None:
    """run(model) is what another implementation says: to 1e-9 in float64, to what rounding allows in float32."""
    found = run(model)
    is_exact = found[0].dtype == torch.float64
    bounds = [1e-9] * len(found) if is_exact else float32_bounds_of(model, run, n_terms)
    for ours, theirs, bound in zip(found, expected, bounds, strict=True):
        assert ours.dtype == theirs.dtype
        assert (ours - theirs).abs().max().item() <= bound

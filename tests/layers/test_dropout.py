"""Dropout on the CPU, from 16 random bits per element."""

import pytest
import torch

from clearformer.layers.dropout import LEVELS, Dropout, scaled_mask

N = 2**18


def mask(p: float, seed: int = 0) -> torch.Tensor:
    torch.manual_seed(seed)
    return scaled_mask(torch.empty(N, dtype=torch.float64), p)


@pytest.mark.parametrize("p", [0.05, 0.1, 0.5, 0.9])
def test_elements_are_dropped_with_probability_p_and_the_others_scaled(p: float) -> None:
    drawn = mask(p)
    rounded = round(p * LEVELS) / LEVELS
    assert set(drawn.tolist()) == {0.0, 1 / (1 - rounded)}
    deviation = (p * (1 - p) / N) ** 0.5  # of the fraction of dropped elements
    assert abs((drawn == 0).double().mean() - p) < 5 * deviation
    assert abs(rounded - p) <= 0.5 / LEVELS


@pytest.mark.parametrize("distance", [1, 2, 3, 4, 128])
def test_elements_are_independent(distance: int) -> None:
    """Four elements come from one 64-bit number; a correlation of n independent pairs has deviation 1/√n."""
    dropped = (mask(0.3) == 0).double() - 0.3
    correlation = (dropped[distance:] * dropped[:-distance]).mean() / (0.3 * 0.7)
    assert abs(correlation) < 5 * N**-0.5


def test_the_gradient_passes_where_elements_were_kept() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 5, 7, dtype=torch.float64, requires_grad=True)  # no multiple of 4 elements
    y = Dropout(0.4)(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(y, x * gradient)
    assert 0 < (gradient == 0).sum() < x.numel()


def test_the_seed_decides_and_threads_do_not() -> None:
    assert torch.equal(mask(0.1, seed=3), mask(0.1, seed=3))
    assert not torch.equal(mask(0.1, seed=3), mask(0.1, seed=4))
    n_threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with_two = mask(0.1)
        torch.set_num_threads(1)
        assert torch.equal(with_two, mask(0.1))
    finally:
        torch.set_num_threads(n_threads)


def test_nothing_is_dropped_in_evaluation_or_with_p_0() -> None:
    x = torch.ones(7)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)
    assert not Dropout(1.0)(x).any()
    assert Dropout(0.5)(torch.empty(0, 3)).shape == (0, 3)

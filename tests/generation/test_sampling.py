import math

import pytest
import torch
from torch import Tensor

from clearformer.generation.sampling import draw, greedy, sampler, top_k, top_p

PROBABILITIES = torch.tensor([0.1, 0.4, 0.05, 0.25, 0.2], dtype=torch.float64)
LOGITS = PROBABILITIES.log() + 3.0  # a constant on all logits must not matter


def shares(logits: Tensor) -> list[float]:
    result: list[float] = logits.softmax(-1).tolist()
    return result


def test_greedy_takes_the_likeliest() -> None:
    assert greedy(torch.stack([LOGITS, -LOGITS])).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("k", "kept"),
    [(1, [0, 1, 0, 0, 0]), (2, [0, 0.4, 0, 0.25, 0]), (3, [0, 0.4, 0, 0.25, 0.2]), (9, PROBABILITIES.tolist())],
)
def test_top_k_keeps_the_k_likeliest(k: int, kept: list[float]) -> None:
    assert shares(top_k(LOGITS, k)) == pytest.approx([x / sum(kept) for x in kept])


@pytest.mark.parametrize(
    ("p", "kept"),
    [
        (0.01, [0, 1, 0, 0, 0]),
        (0.39, [0, 1, 0, 0, 0]),
        (0.41, [0, 0.4, 0, 0.25, 0]),  # 0.4 does not hold 0.41: the one that crosses it belongs
        (0.84, [0, 0.4, 0, 0.25, 0.2]),
        (0.86, [0.1, 0.4, 0, 0.25, 0.2]),
        (1.0, PROBABILITIES.tolist()),
    ],
)
def test_top_p_keeps_the_nucleus(p: float, kept: list[float]) -> None:
    assert shares(top_p(LOGITS, p)) == pytest.approx([x / sum(kept) for x in kept])


def test_each_row_has_its_own_nucleus() -> None:
    kept = top_p(torch.stack([LOGITS, torch.zeros(5, dtype=torch.float64)]), 0.5).isfinite()
    assert kept.tolist() == [[False, True, False, True, False], [True, True, True, False, False]]


def chi_squared(counts: Tensor, expected: Tensor) -> float:
    return float(((counts - expected).square() / expected).sum())


@pytest.mark.parametrize(
    ("temperature", "k", "p", "weights"),
    [
        (1.0, 0, 1.0, PROBABILITIES),
        (2.0, 0, 1.0, PROBABILITIES.sqrt()),
        (0.5, 0, 1.0, PROBABILITIES.square()),
        (0.5, 3, 1.0, PROBABILITIES.square() * torch.tensor([0, 1, 0, 1, 1])),
        (1.0, 4, 0.8, PROBABILITIES * torch.tensor([0, 1, 0, 1, 1])),  # 0.4 + 0.25 + 0.2 of 0.95 holds 0.8 and more
    ],
)
def test_draws_have_the_distribution_that_was_asked_for(temperature: float, k: int, p: float, weights: Tensor) -> None:
    n = 20_000
    choose = sampler(temperature, k, p, torch.Generator().manual_seed(7))
    counts = torch.bincount(choose(LOGITS.expand(n, -1)), minlength=5).double()
    possible = weights > 0
    assert counts[~possible].sum() == 0
    degrees = int(possible.sum()) - 1
    # χ² has mean d and variance 2d: five deviations, and the seed is fixed.
    bound = degrees + 5 * math.sqrt(2 * degrees)
    assert chi_squared(counts[possible], n * weights[possible] / weights.sum()) < bound
    assert chi_squared(counts[possible].flip(0), n * weights[possible] / weights.sum()) > bound, "the test sees nothing"


def test_draws_keep_the_shape_and_follow_the_seed() -> None:
    logits = torch.randn(2, 3, 5)
    drawn = [draw(logits, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert drawn[0].shape == (2, 3)
    assert torch.equal(drawn[0], drawn[1])
    assert draw(LOGITS).shape == ()
    many = [draw(torch.zeros(101, 5), torch.Generator().manual_seed(seed)) for seed in (1, 2)]
    assert not torch.equal(*many)


def test_temperature_zero_is_greedy_and_near_zero_almost() -> None:
    logits = torch.randn(11, 7)
    assert torch.equal(sampler(0.0)(logits), greedy(logits))
    assert torch.equal(sampler(1e-4)(logits), greedy(logits))

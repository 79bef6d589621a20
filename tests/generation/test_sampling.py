import math

import pytest
import torch
from torch import Tensor

from clearformer.generation.sampling import RESOLUTION, draw, generators, greedy, sampler, top_k, top_p

PROBABILITIES = torch.tensor([0.1, 0.4, 0.05, 0.25, 0.2], dtype=torch.float64)
ROWS = torch.arange(1)
LOGITS = PROBABILITIES.log() + 3.0  # a constant on all logits must not matter


def shares(logits: Tensor) -> list[float]:
    result: list[float] = logits.softmax(-1).tolist()
    return result


def test_greedy_takes_the_likeliest() -> None:
    assert greedy(torch.stack([LOGITS, -LOGITS]), ROWS).tolist() == [1, 2]


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
    choose = sampler(temperature, generators(7, [0]), k, p)
    counts = torch.bincount(choose(LOGITS.expand(1, n, -1), ROWS)[0], minlength=5).double()
    possible = weights > 0
    assert counts[~possible].sum() == 0
    degrees = int(possible.sum()) - 1
    # χ² has mean d and variance 2d: five deviations, and the seed is fixed.
    bound = degrees + 5 * math.sqrt(2 * degrees)
    assert chi_squared(counts[possible], n * weights[possible] / weights.sum()) < bound
    assert chi_squared(counts[possible].flip(0), n * weights[possible] / weights.sum()) > bound, "the test sees nothing"


def test_luck_falls_on_a_share_by_hand() -> None:
    """Shares 0.1, 0.4, 0.05, 0.25, 0.2 end at 0.1, 0.5, 0.55, 0.8 and 1."""
    luck = torch.tensor([[0.0, 0.09, 0.11], [0.49, 0.51, 0.56], [0.79, 0.81, 0.999]])
    assert draw(LOGITS.expand(3, 3, 5), luck).tolist() == [[0, 0, 1], [1, 2, 3], [3, 4, 4]]


def test_no_luck_falls_on_what_cannot_be() -> None:
    """Neither the least nor the greatest, though the impossible come first and last and sums are rounded."""
    logits = torch.randn(997, generator=torch.Generator().manual_seed(3))
    logits[:11] = logits[-11:] = -math.inf
    assert draw(logits.expand(2, -1), torch.tensor([0.0, (RESOLUTION - 1) / RESOLUTION])).tolist() == [11, 985]


def test_what_is_drawn_for_a_text_depends_on_the_seed_and_its_number_alone() -> None:
    logits = torch.zeros(3, 101, 5)

    def drawn(seed: int, numbers: list[int]) -> list[list[int]]:
        choose = sampler(1.0, generators(seed, numbers))
        result: list[list[int]] = choose(logits[: len(numbers)], torch.arange(3)).tolist()
        return result

    one, two, three = drawn(1, [5, 2, 3])
    assert drawn(1, [3, 5, 2]) == [three, one, two]
    assert len({tuple(row) for row in (one, two, three, *drawn(2, [5, 2, 3]))}) == 6


def test_without_a_seed_torch_gives_one() -> None:
    torch.manual_seed(11)
    one, two = (generators(None, [0])[0].random() for _ in range(2))
    torch.manual_seed(11)
    assert one == generators(None, [0])[0].random() != two


def test_temperature_zero_is_greedy_and_near_zero_almost() -> None:
    logits = torch.randn(1, 11, 7)
    assert torch.equal(sampler(0.0, [])(logits, ROWS), logits.argmax(-1))
    assert torch.equal(sampler(1e-4, generators(1, [0]))(logits, ROWS), logits.argmax(-1))

"""Rates: what the arithmetic of each update rule says, on the real optimisers."""

from typing import Any

import pytest

from clearformer.claims.rates import SHOWN, UPDATES, look


@pytest.fixture(scope="module")
def numbers() -> dict[str, Any]:
    return look()


def line(numbers: dict[str, Any], panel: int, name: str) -> list[float]:
    values: list[float] = numbers["panels"][panel]["series"][name][1]
    return values


def test_descent_on_a_bowl_is_multiplied_by_one_minus_the_rate(numbers: dict[str, Any]) -> None:
    for rate in (0.02, 0.3, 1.9, 2.05):
        expected = [(1 - rate) ** t for t in range(SHOWN + 1)]
        assert line(numbers, 0, f"ε = {rate:g}") == pytest.approx(expected, rel=1e-9)


def test_adagrad_stalls_on_a_slope_and_rmsprop_does_not(numbers: dict[str, Any]) -> None:
    """A step of AdaGrad is ε / √t; RMSProp's tends to ε."""
    expected = [0.1 / t**0.5 for t in range(1, UPDATES + 1)]
    assert line(numbers, 1, "AdaGrad") == pytest.approx(expected, rel=1e-6)
    assert numbers["last_step"]["slope"]["RMSProp"] == pytest.approx(0.1, rel=1e-3)
    after = numbers["last_step"]["after a cliff"]
    assert after["AdaGrad"] < 0.01 * after["RMSProp"]


def test_the_past_fades_by_powers_of_beta(numbers: dict[str, Any]) -> None:
    weights, sums = line(numbers, 3, "β = 0.9"), line(numbers, 4, "β = 0.9")
    assert weights[10] == pytest.approx(0.1 * 0.9**10)
    assert sum(weights[:30]) == pytest.approx(sums[29])

import math

import pytest

from clearformer.training.schedules import ScheduleConfig

# (kind, settings, {step: factor by hand}) with 100 steps in all
BY_HAND = [
    ("inverse-sqrt", {"warmup": 4}, {1: 0.25, 2: 0.5, 4: 1.0, 16: 0.5, 100: 0.2}),
    ("inverse-sqrt", {"warmup": 0}, {1: 1.0, 4: 0.5}),
    ("linear", {"warmup": 0, "floor": 0.1}, {50: 0.55, 100: 0.1, 150: 0.1}),
    ("linear", {"warmup": 5, "steps": 50}, {1: 0.2 * 0.98, 25: 0.5, 50: 0.0}),
    ("inverse-time", {"warmup": 0, "half": 20}, {20: 0.5, 60: 0.25}),
    ("cosine", {"warmup": 0, "floor": 0.2}, {50: 0.6, 100: 0.2, 25: 0.2 + 0.8 * (1 + math.sqrt(0.5)) / 2}),
    ("stairs", {"warmup": 0, "stair": 10, "hold": 2}, {1: 1.0, 20: 1.0, 21: 0.5, 30: 0.5, 31: 0.25, 100: 0.5**8}),
    ("constant", {"warmup": 10}, {3: 0.3, 10: 1.0, 99: 1.0}),
]


@pytest.mark.parametrize(("kind", "settings", "factors"), BY_HAND)
def test_factors_by_hand(kind, settings, factors):
    schedule = ScheduleConfig(kind=kind, **settings)
    assert {k: schedule.factor(k, 100) for k in factors} == pytest.approx(factors)


def test_inverse_time_meets_robbins_and_monro():
    """Σ ε_k grows without bound, by half·ln 2 whenever the steps double, while Σ ε_k² stays below half."""
    half = 7
    schedule = ScheduleConfig(kind="inverse-time", warmup=0, half=half)
    rates = [schedule.factor(k, 1) for k in range(1, 40_001)]
    first, second = sum(rates[:20_000]), sum(rates)
    assert second - first == pytest.approx(half * math.log(2), rel=1e-3)
    assert sum(rate**2 for rate in rates) < half


def test_squares_of_inverse_sqrt_do_not_converge():
    """Each octave of steps adds warmup·ln 2 to Σ ε_k²: the paper's schedule is not Robbins and Monro's."""
    schedule = ScheduleConfig(kind="inverse-sqrt", warmup=5)
    octave = [schedule.factor(k, 1) ** 2 for k in range(10_001, 20_001)]
    assert sum(octave) == pytest.approx(5 * math.log(2), rel=1e-3)


@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_linear_meets_one_of_robbins_and_monros_conditions_at_most(floor):
    """Beyond the end it stays where it is: at 0 nothing is added to Σ ε_k, above it each step adds to Σ ε_k²."""
    schedule = ScheduleConfig(kind="linear", warmup=0, floor=floor)
    beyond = [schedule.factor(k, 100) for k in range(101, 1_101)]
    assert sum(beyond) == pytest.approx(1000 * floor)
    assert sum(rate**2 for rate in beyond) == pytest.approx(1000 * floor**2)

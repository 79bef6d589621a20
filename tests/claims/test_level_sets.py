import math

import pytest
import torch
from torch.func import grad

from clearformer.claims.level_sets import RADII, along, angle, height, walk

NUMBERS = walk(seed=3)


@pytest.mark.parametrize("place", NUMBERS["places"])
def test_the_angle_tends_to_90_degrees_as_the_step_shrinks(place):
    """The level set bends away from its tangent by (curvature / 2) |dr|: a tenth of the step, a tenth of the angle."""
    off = [abs(degrees - 90) for degrees in place["degrees"]]
    assert off[-1] < 0.2
    assert off[RADII.index(0.01)] / off[RADII.index(0.001)] == pytest.approx(10, rel=0.1)


def test_a_step_along_a_circle_by_hand(monkeypatch):
    """On φ = x² + y² a chord of length d from a point of the circle r leaves the tangent by asin(d / 2r)."""
    monkeypatch.setattr("clearformer.claims.level_sets.height", lambda p: p @ p)
    point = torch.tensor([0.6, 0.8], dtype=torch.float64)  # r = 1
    assert angle(point, along(point, 2 * point, 0.2)) == pytest.approx(90 + math.degrees(math.asin(0.1)))


def test_the_rise_is_steepest_along_the_gradient():
    best = max(range(len(NUMBERS["rise"])), key=NUMBERS["rise"].__getitem__)
    assert NUMBERS["turn"][best] == 0
    assert NUMBERS["rise"][best] == pytest.approx(NUMBERS["slope"], rel=1e-2)
    assert min(NUMBERS["rise"]) == pytest.approx(-NUMBERS["slope"], rel=1e-2)


def test_a_step_adds_to_the_level():
    """φ(r + dr) = φ + dφ, dφ = ∇φ·dr."""
    r, dr = torch.tensor([0.7, -0.3], dtype=torch.float64), torch.tensor([2e-5, -3e-5], dtype=torch.float64)
    assert height(r + dr).item() == pytest.approx((height(r) + grad(height)(r) @ dr).item(), abs=1e-8)

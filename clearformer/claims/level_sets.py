"""The gradient is perpendicular to the level set, and points in the direction of steepest ascent.

    dφ = ∇φ·dr = |∇φ| |dr| cos θ          dφ = 0 along the level set, so θ = 90° there; dφ / |dr| is largest at θ = 0

The level set is found without derivatives: on a circle of radius |dr| around a point P, a search finds the point Q with
φ(Q) = φ(P). The deviation of the angle between ∇φ and PQ from 90° shrinks in proportion to the radius.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.func import grad

from clearformer.claims.surfaces import PLACES, contours

PLACE = PLACES["saddle"]
POINTS = 7
RADII = (0.1, 0.03, 0.01, 0.003, 0.001)
TURNS = 37  # number of directions in which the slope is measured


def height(point: Tensor) -> Tensor:
    return PLACE.height(point[0], point[1])


def walk(seed: int = 0) -> dict[str, Any]:
    """Return the data that `clearformer plot level-sets` shows."""
    left, right, bottom, top = PLACE.window
    corner, size = torch.tensor([left, bottom]).double(), torch.tensor([right - left, top - bottom]).double()
    generator = torch.Generator().manual_seed(seed)
    points = corner + size * (0.1 + 0.8 * torch.rand(POINTS, 2, generator=generator, dtype=torch.float64))
    places = []
    for point in points:
        slope = grad(height)(point)
        steps = [along(point, slope, radius) for radius in RADII]
        places.append(
            {
                "point": point.tolist(),
                "height": height(point).item(),
                "gradient": slope.tolist(),
                "step": steps[-1].tolist(),
                "degrees": [angle(slope, step) for step in steps],
            }
        )
    point, slope = points[0], grad(height)(points[0])
    turns = torch.linspace(-180, 180, TURNS, dtype=torch.float64)
    start = math.atan2(slope[1], slope[0])
    ways = [direction(start + math.radians(turn)) for turn in turns.tolist()]
    rises = [(height(point + RADII[-1] * way) - height(point)).item() / RADII[-1] for way in ways]
    worst = max(abs(place["degrees"][-1] - 90) for place in places)
    return {
        "title": f"The gradient is perpendicular to its level set, to within {worst:.2g}° for steps of {RADII[-1]:g}",
        "seed": seed,
        "equation": PLACE.equation,
        **contours(PLACE),
        "radii": list(RADII),
        "places": places,
        "slope": slope.norm().item(),
        "turn": turns.tolist(),
        "rise": rises,
    }


def along(point: Tensor, slope: Tensor, radius: float) -> Tensor:
    """Find the step of length `radius` that keeps the height, by bisection between steepest descent and ascent."""
    start = math.atan2(slope[1], slope[0])
    low, high = start + math.pi, start
    for _ in range(60):
        middle = (low + high) / 2
        if height(point + radius * direction(middle)) < height(point):
            low = middle
        else:
            high = middle
    return radius * direction(high)


def direction(radians: float) -> Tensor:
    return torch.tensor([math.cos(radians), math.sin(radians)], dtype=torch.float64)


def angle(a: Tensor, b: Tensor) -> float:
    """Return the angle between two vectors, in degrees."""
    return math.degrees(math.acos(a @ b / (a.norm() * b.norm())))

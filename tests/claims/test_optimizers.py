import json
from pathlib import Path
from typing import Any

import pytest
import torch

from clearformer.claims import optimizers
from clearformer.claims.optimizers import KINDS, MINI, N, Spirals, Surface, draw, race, run, seeded
from clearformer.claims.surfaces import PLACES, Place, contours
from clearformer.plots import plot_optimizers
from clearformer.training.optim import OptimConfig


@pytest.fixture(scope="module")
def numbers() -> dict[str, Any]:
    """A race over a few updates, at two rates."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"UPDATES": 5, "EPOCHS": 3, "RATES": (0.03, 0.3)}.items():
            patch.setattr(optimizers, name, value)
        return race(seed=2)


def test_gradient_descent_in_the_ravine_by_hand() -> None:
    """x ← (1 − ε) x along it and y ← (1 − 25 ε) y across, whose sign changes at every step beyond ε = 0.04."""
    lr, (x, y) = 0.06, PLACES["ravine"].start
    seen = run(Surface(PLACES["ravine"], seeded(3)), OptimConfig(kind="gd", lr=lr), N, 11, 1, seed=3)
    by_hand = [((1 - lr) ** t * x, (1 - 25 * lr) ** t * y) for t in range(12)]
    torch.testing.assert_close(torch.tensor(seen["path"]), torch.tensor(by_hand), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("kind", ["gd", "momentum", "nesterov"])
def test_no_scaled_gradient_leaves_the_ridge_of_the_saddle(kind: str) -> None:
    ridge = PLACES["saddle"]._replace(start=(-1.6, 0.0))
    seen = run(Surface(ridge, seeded(3)), OptimConfig(kind=kind, lr=0.1), N, 17, 1, seed=3)
    assert max(abs(y) for _, y in seen["path"]) < 1e-12


@pytest.mark.parametrize("place", PLACES.values(), ids=list(PLACES))
def test_a_surface_is_the_mean_of_its_instances(place: Place) -> None:
    course = Surface(place, seeded(5))
    heights = torch.stack([course(torch.tensor([i])) for i in range(N)])
    torch.testing.assert_close(heights.mean(), place.height(*course.point))
    assert heights.std() > 0.1
    grid = contours(place)["height"]
    assert place.lowest == pytest.approx(min(map(min, grid)), abs=0.05)


def test_a_pass_meets_every_instance_once() -> None:
    batches = draw(MINI, seeded(1))
    for _ in range(2):
        assert sorted(torch.cat([next(batches) for _ in range(N // MINI)]).tolist()) == list(range(N))


def test_a_race_is_the_same_again_and_keeps_to_the_rules(numbers: dict[str, Any]) -> None:
    network = numbers["network"]["runs"]
    assert {racer: one["batch"] for racer, one in network.items()} == {
        **dict.fromkeys(KINDS, MINI), "gradient descent": N, "SGD": 1,
    }  # fmt: skip
    assert len({one["loss"][0] for one in network.values()}) == 1  # all from one start
    spirals = Spirals(seeded(2))
    again = run(spirals, OptimConfig(kind="adam", lr=network["Adam"]["lr"]), MINI, 3, N // MINI, seed=2)
    assert again == network["Adam"]
    for surface in numbers["surfaces"].values():
        assert all(len(one["path"]) == len(one["loss"]) == 6 for one in surface["runs"].values())


def test_the_picture_is_drawn_from_the_numbers_alone(numbers: dict[str, Any], tmp_path: Path) -> None:
    svg = plot_optimizers(json.loads(json.dumps(numbers)), tmp_path / "race.svg").read_text()
    for words in (*KINDS, "updates", "epochs", numbers["title"]):
        assert f"<!-- {words} -->" in svg

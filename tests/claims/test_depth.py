"""Signals through thirty plain layers, before training."""

from typing import Any

import pytest

from clearformer.claims import depth


@pytest.fixture(scope="module")
def numbers() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(depth, "STEPS", 2)
        patch.setattr(depth, "SEEDS", 2)
        return depth.look(seed=3)


def test_initialisation_decides_in_a_plain_network(numbers: dict[str, Any]) -> None:
    """Each layer of relu halves the second moment with Xavier: 2^(−30/2) in all; He keeps it to some factor."""
    last = numbers["last_deviation"]
    assert last["0.01, plain"] < 1e-20
    assert last["Xavier, plain"] < 1e-3 * last["He, plain"]
    assert 0.01 < last["He, plain"] < 10


def test_batch_norm_makes_the_start_irrelevant_for_the_signal(numbers: dict[str, Any]) -> None:
    last = [numbers["last_deviation"][f"{start}, batch norm"] for start in depth.STARTS]
    assert max(last) < 1.1 * min(last)


def test_gradients_of_batch_norm_grow_towards_the_first_layer_without_shortcuts(numbers: dict[str, Any]) -> None:
    """An unflattering side of batch norm: as Yang et al. 2019 prove, they explode with depth."""
    first = numbers["first_gradient"]
    assert first["He, batch norm"] > 5 * first[f"He, {depth.BOTH}"]


def test_every_seed_is_listed(numbers: dict[str, Any]) -> None:
    assert numbers["loss_by_seed"].keys() == numbers["loss"].keys()
    for name, losses in numbers["loss_by_seed"].items():
        assert len(set(losses)) == 2, "two seeds, two networks"
        assert sum(losses) / 2 == pytest.approx(numbers["loss"][name])

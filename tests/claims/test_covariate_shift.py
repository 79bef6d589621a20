"""Pre-activations that move, and roses of another colour."""

from typing import Any

import pytest
import torch

from clearformer.claims import covariate_shift


@pytest.fixture(scope="module")
def numbers() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(covariate_shift, "STEPS", 20)
        patch.setattr(covariate_shift, "SEEDS", 1)
        return covariate_shift.look(seed=3)


def test_nothing_has_moved_at_the_start(numbers: dict[str, Any]) -> None:
    for panel in numbers["panels"][:3]:
        assert all(line[1][0] == 0 for line in panel["series"].values())
    assert all(min(shifts) > 0 for shifts in numbers["last_shift"].values())


def test_batch_norm_holds_the_means_of_pre_activations(numbers: dict[str, Any]) -> None:
    """They are β of each unit, which moves by a few small steps."""
    shift = {name: max(values) for name, values in numbers["last_shift"].items()}
    assert shift["batch norm"] < shift["layer norm"]
    assert shift["batch norm"] < shift["no norm"]


def test_only_the_colour_of_roses_differs() -> None:
    red, labels = covariate_shift.pictures(50, covariate_shift.RED, torch.Generator().manual_seed(0))
    white, again = covariate_shift.pictures(50, covariate_shift.WHITE, torch.Generator().manual_seed(0))
    assert labels.equal(again)
    assert red[labels == 0].equal(white[labels == 0])
    assert red[:, 0].equal(white[:, 0])
    assert not red[labels == 1, 1:].any()

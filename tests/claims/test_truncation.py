"""Truncated gradients: the same loss, another gradient."""

from typing import Any

import pytest
import torch

from clearformer.claims import truncation
from clearformer.claims.gradients import T, texts
from clearformer.claims.readers import Recurrent


@pytest.fixture(scope="module")
def numbers() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(truncation, "STEPS", 2)
        patch.setattr(truncation, "SEEDS", 1)
        return truncation.look(seed=3)


def test_truncation_changes_the_gradient_and_not_the_loss() -> None:
    torch.manual_seed(0)
    reader = Recurrent(11, "lstm").double()
    rows = texts(torch.randint(11, (500,), generator=torch.Generator().manual_seed(0)), 3, torch.Generator())
    losses = [truncation.loss_of(reader, rows, k) for k in (1, 5, T)]
    for loss in losses:
        torch.testing.assert_close(loss, losses[-1])
    weight = reader.layer.weights.weight_hh_l0
    short, full = (torch.autograd.grad(loss, weight)[0] for loss in (losses[0], losses[-1]))
    assert not short.allclose(full, rtol=1e-2)


def test_the_whole_text_is_no_truncation(numbers: dict[str, Any]) -> None:
    for line in numbers["cosine"].values():
        assert line[str(T)] == pytest.approx(1, abs=1e-5)
        assert line["1"] < line["64"]

"""Pre-activations that move, and roses of another colour."""

from typing import Any

import pytest
import torch

from clearformer.claims import covariate_shift


@pytest.fixture(scope="module")
def numbers() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(covariate_shift, "STEPS", 20)
        patch.setattr(covariate_shift, "SEEDS", 2)
        return covariate_shift.look(seed=3)


def test_batch_norm_holds_the_means_of_pre_activations(numbers: dict[str, Any]) -> None:
    """They are β of each unit, which moves by a few small steps."""
    shift = {name: max(values) for name, values in numbers["shift"].items()}
    assert shift["batch norm"] < shift["layer norm"]
    assert shift["batch norm"] < shift["no norm"]


def test_only_with_batch_norm_do_minibatches_have_one_mean(numbers: dict[str, Any]) -> None:
    """Otherwise the mean of 64 independent values varies by 1/√64 of their deviation."""
    between = numbers["between_minibatches"]
    assert max(between["batch norm"]) < 1e-5
    for name in ("no norm", "layer norm"):
        assert between[name] == pytest.approx([1 / 8] * covariate_shift.DEPTH, rel=0.3)


def test_the_figure_has_the_distribution_of_each_minibatch(numbers: dict[str, Any]) -> None:
    unit = [panel for panel in numbers["panels"] if panel["title"].startswith("unit of layer")]
    assert len(unit) == 6
    for panel in unit:
        low, middle, high = (line[1] for line in panel["series"].values())
        assert len(low) == 20
        assert all(a < b < c for a, b, c in zip(low, middle, high))


def test_a_shift_is_measured_in_the_deviation_of_both_times() -> None:
    before = torch.tensor([[-1.0], [1.0]])  # variance 2
    assert covariate_shift.shift_of(before, before) == 0
    assert covariate_shift.shift_of(before, before + 3) == pytest.approx(3 / 2**0.5, rel=1e-4)
    assert covariate_shift.shift_of(0 * before, before + 3) == pytest.approx(3, rel=1e-4), "a unit that was constant"


def test_the_variation_between_minibatches_by_hand() -> None:
    batches = [torch.tensor([[0.0], [2.0]]), torch.tensor([[2.0], [4.0]])]  # means 1 and 3, deviations √2
    assert covariate_shift.between(batches) == pytest.approx(1, rel=1e-4)


def test_no_shift_between_training_and_test_means_no_loss(numbers: dict[str, Any]) -> None:
    roses = next(panel for panel in numbers["panels"] if panel["title"].startswith("roses"))
    for name, (shades, accuracy) in roses["series"].items():
        assert (shades[0], shades[-1]) == (0, 1)
        assert accuracy[0] == numbers["roses"][name]["red"] > 0.9
        assert accuracy[-1] == numbers["roses"][name]["white"]


def test_only_the_colour_of_roses_differs() -> None:
    red, labels = covariate_shift.pictures(50, covariate_shift.RED, torch.Generator().manual_seed(0))
    white, again = covariate_shift.pictures(50, covariate_shift.WHITE, torch.Generator().manual_seed(0))
    assert labels.equal(again)
    assert red[labels == 0].equal(white[labels == 0])
    assert red[:, 0].equal(white[:, 0])
    assert not red[labels == 1, 1:].any()

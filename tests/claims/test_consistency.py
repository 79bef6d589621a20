"""Two views of an image, and how much a network disagrees about them."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearformer.claims import consistency
from clearformer.claims.batch_norm import CLASSES, N, gratings


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_as_many_labels_for_every_class() -> None:
    images, classes = consistency.labelled(3, generator())
    assert images.shape == (3 * CLASSES, 1, N, N)
    assert classes.bincount().tolist() == [3] * CLASSES


def test_a_view_is_turned_or_negative_and_noisy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consistency, "NOISE", 0.0)
    image = torch.arange(1.0, N * N + 1).view(1, 1, N, N)
    views = consistency.view(image.expand(50, 1, N, N), generator())
    forms = [image, -image, image.flip(2, 3), -image.flip(2, 3)]
    assert all(sum(view.equal(form[0]) for form in forms) == 1 for view in views)
    assert all(any(view.equal(form[0]) for view in views) for form in forms)
    monkeypatch.setattr(consistency, "NOISE", 0.5)
    noisy = consistency.view(torch.zeros(500, 1, N, N), generator())
    assert noisy.std().item() == pytest.approx(0.5, rel=0.02)  # five deviations of 40,500 draws


class Same(nn.Module):
    """A network that gives every image the same logits."""

    def forward(self, images: Tensor) -> tuple[Tensor, None]:
        return torch.ones(len(images), CLASSES), None


class Sign(nn.Module):
    """A network that is sure of class 0 where the sum is positive, and of class 1 elsewhere."""

    def forward(self, images: Tensor) -> tuple[Tensor, None]:
        sign = images.sum((1, 2, 3)).sign()
        return torch.stack([100 * sign, -100 * sign], dim=1), None


def test_disagreement_is_the_squared_distance_of_probabilities() -> None:
    images, _ = gratings(400, generator())
    assert consistency.disagreement(Same(), images, generator()) == 0
    about_half = consistency.disagreement(Sign(), images, generator())  # 2 where two views have different signs
    assert float(about_half) == pytest.approx(1.0, abs=0.25)  # five deviations of 400 draws


@pytest.fixture(scope="module")
def values() -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consistency, "STEPS", 60)
        patch.setattr(consistency, "SEEDS", 1)
        patch.setattr(consistency, "LABELS", (1, 4))
        return consistency.look(seed=3)


def test_consistency_makes_views_agree(values: dict[str, Any]) -> None:
    alone, with_it = (values["disagreement"][name] for name in consistency.WEIGHTS)
    assert all(after < before for before, after in zip(alone, with_it))
    assert [len(line) for line in values["accuracy"].values()] == [2, 2]

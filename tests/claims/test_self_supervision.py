"""The losses of self-supervised learning by hand, and what the figure shows."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.claims import self_supervision
from clearformer.claims.batch_norm import CLASSES, N, gratings
from clearformer.claims.self_supervision import HIDDEN, WIDTH, build, contrast, masked_pixels, pretrain, read


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_the_contrastive_loss_is_the_equation() -> None:
    torch.manual_seed(0)
    z, other = torch.randn(2, 3, 5, dtype=torch.float64)
    views, tau, losses = [*z, *other], 0.5, []
    for i, row in enumerate(views):
        scores = [torch.exp(F.cosine_similarity(row, view, dim=0) / tau) for view in views]
        j = (i + 3) % 6
        losses.append(-torch.log(scores[j] / sum(score for k, score in enumerate(scores) if k != i)))
    torch.testing.assert_close(contrast(z, other, tau), torch.stack(losses).mean())


def test_equal_views_that_are_orthogonal_to_all_others_by_hand() -> None:
    z = torch.eye(4)  # cosine 1 with the other view, 0 with six more
    assert contrast(z, z, 1.0).item() == pytest.approx(torch.tensor((torch.e + 6) / torch.e).log().item(), rel=1e-6)


def test_the_length_of_a_vector_does_not_matter() -> None:
    z, other = torch.randn(2, 7, 5, generator=generator()).double()
    torch.testing.assert_close(contrast(3 * z, other / 11), contrast(z, other))


class Seen(nn.Module):
    """Features that do not depend on the image, which is kept."""

    def forward(self, images: Tensor) -> Tensor:
        self.images = images
        return torch.zeros(len(images), WIDTH)


def test_half_of_the_pixels_are_hidden_and_only_they_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_supervision, "view", lambda images, generator: images)
    torch.manual_seed(0)
    body = Seen()
    head, loss = masked_pixels(body, generator())
    for parameter in head.parameters():
        nn.init.zeros_(parameter)  # paints zeros, so the error is the mean square of the hidden pixels
    images, _ = gratings(200, generator())
    value = loss(images)
    is_hidden = body.images != images
    assert is_hidden.float().mean().item() == pytest.approx(0.5, abs=0.02)  # five deviations of 16,200 draws
    assert (body.images[is_hidden] == 0).all()
    assert value.item() == pytest.approx(images[is_hidden].square().mean().item(), rel=1e-5)


def test_a_frozen_body_keeps_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_supervision, "STEPS", 3)
    for is_frozen in (True, False):
        body, before = build(5), build(5)
        read(body, 1, 5, is_frozen)
        same = [a.equal(b) for a, b in zip(body.parameters(), before.parameters())]
        assert all(same) if is_frozen else not any(same)


def test_a_body_has_the_width_that_the_heads_read() -> None:
    images, _ = gratings(3, generator())
    assert images.shape == (3, 1, N, N)
    assert build(0)(images).shape == (3, WIDTH)
    assert HIDDEN != WIDTH


@pytest.mark.parametrize("name", ["contrastive", "masked pixels"])
def test_images_without_labels_make_better_features(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_supervision, "PRETRAINING", 200)
    learned, random = read(pretrain(name, 3)[0], 8, 3), read(build(3), 8, 3)
    assert learned > random + 0.05
    assert random > 1 / CLASSES


def test_losses_are_means_relative_to_the_first() -> None:
    assert self_supervision.fall([4.0] * 10 + [1.0, 3.0] * 5 + [6.0]) == [1.0, 0.5, 1.5]


def test_the_figure_has_a_line_for_every_body(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting, value in (("PRETRAINING", 2), ("STEPS", 2), ("SEEDS", 2), ("LABELS", (1, 2))):
        monkeypatch.setattr(self_supervision, setting, value)
    values: dict[str, Any] = self_supervision.look(seed=3)
    assert [*values["accuracy"]] == ["contrastive", "masked pixels", "random body", "labels alone"]
    learning, reading = values["panels"]
    assert [*learning["series"]] == ["contrastive", "masked pixels"]
    assert reading["series"].keys() == values["accuracy"].keys()
    for name, lines in values["accuracy_by_seed"].items():
        assert values["accuracy"][name] == pytest.approx([(a + b) / 2 for a, b in zip(*lines)])

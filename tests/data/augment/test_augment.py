"""What each augmentation does to an image, how often, and that it draws from the seed alone."""

import pytest
import torch
from torch import Tensor

from clearformer.data.augment import AugmentConfig
from clearformer.data.augment.crop import crop
from clearformer.data.augment.erasing import AREA, ASPECT, erase
from clearformer.data.augment.flip import flip
from clearformer.data.augment.mixup import mixup

B, C, Y, X = 401, 3, 11, 13


@pytest.fixture
def pixels() -> Tensor:
    torch.manual_seed(0)
    return torch.randint(1, 256, (B, C, Y, X), dtype=torch.uint8)  # no black, which crops bring in


def test_half_are_flipped_and_a_flip_undoes_itself(pixels: Tensor) -> None:
    found = flip(pixels)
    is_flipped = (found == pixels.flip(3)).flatten(1).all(1)
    assert ((found == pixels).flatten(1).all(1) ^ is_flipped).all()
    assert 0.42 < is_flipped.double().mean() < 0.58
    torch.manual_seed(5)
    once = flip(pixels)
    torch.manual_seed(5)
    assert flip(once).equal(pixels)


def test_a_crop_is_the_image_moved(pixels: Tensor) -> None:
    n, found = 2, crop(pixels, 2)
    padded = torch.nn.functional.pad(pixels, [n] * 4)
    counts = torch.zeros(2 * n + 1, 2 * n + 1)
    every = [(y, x) for y in range(2 * n + 1) for x in range(2 * n + 1)]
    for before, after in zip(padded, found):
        [place] = [(y, x) for y, x in every if after.equal(before[:, y : y + Y, x : x + X])]
        counts[place] += 1
    assert counts.min() >= 3  # of 16 expected at each place
    assert counts.max() <= 34


def test_a_rectangle_is_erased_in_a_share_of_images(pixels: Tensor) -> None:
    still = torch.full((4001, 2, 29, 31), 7, dtype=torch.uint8)
    found = erase(still, 0.25)
    changed = (found != still).any(1)  # (B, Y, X); noise is 7 in both channels once in 65,536
    is_erased = changed.flatten(1).any(1)
    assert 0.22 < is_erased.double().mean() < 0.28
    rows, columns = changed[is_erased].any(2), changed[is_erased].any(1)
    box = rows[:, :, None] & columns[:, None]
    assert (changed[is_erased] == box).double().mean() > 0.9999
    heights, widths = rows.sum(1).double(), columns.sum(1).double()
    area, aspect = heights * widths / (29 * 31), heights / 29 / (widths / 31)
    assert AREA[0] * 0.5 < area.min()
    assert area.max() < AREA[1] * 1.2
    assert abs(area.mean() - sum(AREA) / 2) < 0.02
    assert aspect.log().abs().max() < -torch.tensor(ASPECT).log() * 1.3
    assert abs(aspect.log().mean()) < 0.1
    noise = found.permute(0, 2, 3, 1)[changed].double()
    assert abs(noise.mean() - 127.5) < 2
    assert erase(pixels, 0.0).equal(pixels)


def test_mixup_by_hand() -> None:
    torch.manual_seed(0)
    pixels, answers = torch.randn(B, C, Y, X), torch.eye(B)
    mixed, shares = mixup(pixels, answers, 0.4)
    torch.testing.assert_close(shares.sum(1), torch.ones(B))
    torch.testing.assert_close(mixed, torch.einsum("ij,jcyx->icyx", shares, pixels))  # the answers say what was mixed
    own = shares.diagonal()
    assert (shares > 0).sum(1).max() == 2
    assert abs(own.mean() - 0.5) < 0.08
    assert abs(own.var() - 1 / (4 * (2 * 0.4 + 1))) < 0.03  # of Beta(α, α)


def test_nothing_is_done_that_is_not_asked_for(pixels: Tensor) -> None:
    assert AugmentConfig()(pixels) is pixels


def test_the_seed_says_what_is_drawn(pixels: Tensor) -> None:
    augment = AugmentConfig(flip=True, crop=3, erase=0.5)
    found = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        found.append(augment(pixels))
    assert found[0].equal(found[1])
    assert not found[0].equal(found[2])
    assert found[0].dtype == torch.uint8
    assert found[0].shape == pixels.shape

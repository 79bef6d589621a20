"""Every operation against Pillow's, and what is drawn."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from clearformer.data.augment.randaugment import MOVES, OPERATIONS, operate, randaugment

M = 0.3


def moved(image: Image.Image, a: float, b: float, c: float, d: float, e: float, f: float) -> Image.Image:
    """About the centre, as ours are."""
    half = image.width / 2
    numbers = (a, b, c + half * (1 - a - b), d, e, f + half * (1 - d - e))
    return image.transform(image.size, Image.Transform.AFFINE, numbers, Image.Resampling.BILINEAR)


PILLOW: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "identity": lambda image, sign: image,
    "brightness": lambda image, sign: ImageEnhance.Brightness(image).enhance(1 + 0.9 * M * sign),
    "contrast": lambda image, sign: ImageEnhance.Contrast(image).enhance(1 + 0.9 * M * sign),
    "colour": lambda image, sign: ImageEnhance.Color(image).enhance(1 + 0.9 * M * sign),
    "sharpness": lambda image, sign: ImageEnhance.Sharpness(image).enhance(1 + 0.9 * M * sign),
    "posterize": lambda image, sign: ImageOps.posterize(image, 7),
    "solarize": lambda image, sign: ImageOps.solarize(image, 255 * (1 - M)),
    "autocontrast": lambda image, sign: ImageOps.autocontrast(image),
    "equalize": lambda image, sign: ImageOps.equalize(image),
    "rotate": lambda image, sign: image.rotate(30 * M * sign, Image.Resampling.BILINEAR),
    "shear_x": lambda image, sign: moved(image, 1, 0.3 * M * sign, 0, 0, 1, 0),
    "shear_y": lambda image, sign: moved(image, 1, 0, 0, 0.3 * M * sign, 1, 0),
    "translate_x": lambda image, sign: moved(image, 1, 0, 0.45 * M * sign * image.width, 0, 1, 0),
    "translate_y": lambda image, sign: moved(image, 1, 0, 0, 0, 1, 0.45 * M * sign * image.height),
}


def images(channels: int) -> Tensor:
    """Smooth ones with a little noise, as photographs are, each with tones of its own."""
    torch.manual_seed(0)
    coarse = torch.rand(6, channels, 5, 5) * 200 + 20
    smooth = torch.nn.functional.interpolate(coarse, size=(37, 37), mode="bilinear")
    return (smooth + 8 * torch.randn_like(smooth)).clamp(0, 255).to(torch.uint8)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_an_operation_is_pillows(name: str, channels: int, sign: float) -> None:
    before = images(channels)
    n = len(before)
    after = operate(before, torch.full((n,), OPERATIONS.index(name)), M, torch.full((n,), sign))
    for x, found in zip(before.permute(0, 2, 3, 1), after.permute(0, 2, 3, 1)):
        image = Image.fromarray(x.squeeze(2).numpy())
        expected = np.atleast_3d(np.asarray(PILLOW[name](image, sign))).astype(int)
        off = np.abs(found.numpy().astype(int) - expected)
        if name in MOVES:  # at the black edge Pillow does not blend
            assert np.quantile(off[expected > 0], 0.95) <= 2
            assert (expected == 0).mean() < 0.2
        else:
            assert off.max() <= 1
            assert (off > 0).mean() < 0.02


def test_each_has_a_reference() -> None:
    assert PILLOW.keys() == set(OPERATIONS)
    assert len(OPERATIONS) == 14


def test_images_are_drawn_for_one_by_one() -> None:
    """Each image becomes what its own operation makes of it, whatever the others become.

    But for rounding: places between pixels are products, which one image and several take by different kernels, and
    a number that stands at a half then goes up or down.
    """
    before = images(3)
    which, sign = torch.tensor([0, 3, 7, 10, 13, 9]), torch.tensor([1.0, -1, 1, -1, 1, -1])
    together = operate(before, which, M, sign)
    for i in range(len(before)):
        alone = operate(before[i : i + 1], which[i : i + 1], M, sign[i : i + 1])[0]
        off = (together[i].int() - alone.int()).abs()
        assert off.max() <= 1
        assert (off > 0).float().mean() < 0.01


def test_the_seed_says_what_is_drawn_and_nothing_is_nothing() -> None:
    before, found = images(3), []
    assert randaugment(before, 0, 9) is before
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(randaugment(before, 2, 9.0))
    assert found[0].equal(found[1])
    assert not found[0].equal(found[2])
    assert found[0].dtype == torch.uint8


def test_flat_images_survive() -> None:
    flat = torch.full((14, 3, 7, 7), 77, dtype=torch.uint8)
    found = operate(flat, torch.arange(14), M, torch.ones(14))
    for name in ("autocontrast", "equalize", "contrast", "colour", "sharpness"):
        assert found[OPERATIONS.index(name)].equal(flat[0])

"""Properties of images: correlation of pixels, the size of a view, learning, and the figure."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch


@pytest.fixture
def properties() -> Any:
    return import_module("image_properties")


def test_pixels_of_noise_are_uncorrelated_and_equal_pixels_are_not(properties: Any) -> None:
    noise = torch.randn(50, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    assert abs(properties.neighbours(noise, 1)) < 0.03  # 37,800 pairs: six standard deviations
    flat = noise[:, :, :, :1].expand(-1, -1, -1, 28)
    assert properties.neighbours(flat, 5) == pytest.approx(1, abs=1e-4)


def test_a_move_keeps_the_values_and_is_the_same_for_every_image(properties: Any) -> None:
    images = torch.arange(2 * 28 * 28.0).view(2, 1, 28, 28)
    moved = properties.move(torch.randperm(28 * 28, generator=torch.Generator().manual_seed(0)), images)
    assert not torch.equal(moved, images)
    assert torch.equal(moved.flatten().sort().values, images.flatten())
    assert torch.equal(moved[1] - moved[0], torch.full((1, 28, 28), 784.0))


@pytest.mark.parametrize(("pixels", "depth"), [(3, 1), (7, 2), (15, 3)])
def test_a_place_sees_as_many_pixels_as_the_table_says(properties: Any, pixels: int, depth: int) -> None:
    assert properties.DEPTHS[pixels] == depth
    trunk = torch.nn.Sequential(*list(properties.convolutions(depth).eval())[:-3])
    image = torch.randn(1, 1, 28, 28, requires_grad=True)
    features = trunk(image)
    centre = features.size(-1) // 2
    features[..., centre, centre].sum().backward()
    assert image.grad is not None
    columns = image.grad[0, 0].abs().sum(0).nonzero()
    assert int(columns.max() - columns.min()) + 1 <= pixels
    assert int(columns.max() - columns.min()) + 1 > pixels // 2


def test_a_network_learns_bright_from_dark(properties: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(properties, "STEPS", 20)
    classes = torch.arange(200) % 2
    images = torch.randn(200, 1, 28, 28, generator=torch.Generator().manual_seed(0)) + 4 * classes.view(-1, 1, 1, 1)
    assert properties.learn(properties.connected, (images, classes), (images, classes), 0) > 0.9


def test_the_figure_shows_the_recorded_result(properties: Any, tmp_path: Path) -> None:
    result = json.loads((properties.RESULTS / "image-properties.json").read_text(encoding="utf-8"))
    properties.plot(result, tmp_path / "figure.svg")
    text = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    for label in ("pixels moved", "convolutions", "pixels that a place sees across"):
        assert label in text

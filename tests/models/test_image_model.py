"""AlexNet, VGG and ResNet: sizes that were published, images of other sizes, and what cannot be built."""

from typing import Any

import pytest
import torch

from clearformer.data.batch import ImageBatch
from clearformer.errors import ConfigError
from clearformer.models import MODELS
from clearformer.models.build import build_model, model_config

# In torchvision's documentation; the ResNets for 32×32 in He et al. 2016, table 6, in millions.
PARAMETERS = {
    "alexnet": 62_378_344,  # the notes' table, ungrouped
    "alexnet-torchvision": 61_100_840,
    "vgg11": 132_863_336,
    "vgg13-bn": 133_053_736,
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
}
MILLIONS = {
    "resnet20": 0.27,
    "resnet32": 0.46,
    "resnet44": 0.66,
    "resnet56": 0.85,
    "resnet110": 1.7,
    "resnet1202": 19.4,
}


def count(name: str) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in build_model(model_config(name)).parameters())


@pytest.mark.parametrize("name", PARAMETERS)
def test_published_sizes(name: str) -> None:
    assert count(name) == PARAMETERS[name]


@pytest.mark.parametrize("name", MILLIONS)
def test_sizes_of_the_paper(name: str) -> None:
    n = count(name) / 1e6
    assert round(n, 1 if MILLIONS[name] > 1 else 2) == MILLIONS[name]


@pytest.mark.parametrize("n", [20, 32, 44, 56])
def test_option_a_has_nothing_to_learn(n: int) -> None:
    assert count(f"plain{n}") == count(f"resnet{n}")


@pytest.mark.parametrize(
    ("name", "size", "channels"), [("alexnet-small", 28, 1), ("vgg11-small", 32, 1), ("resnet18-small", 28, 1)]
)
def test_small_images(name: str, size: int, channels: int) -> None:
    config = model_config(name).changed(size=size, channels=channels)
    scores = build_model(config)(ImageBatch(torch.randn(2, channels, size, size)))
    assert scores.shape == (2, 10)
    scores.sum().backward()


@pytest.mark.parametrize("kind", ["alexnet", "vgg", "resnet"])
def test_a_batch_is_its_images_one_by_one_in_use(kind: str) -> None:
    small: dict[str, Any] = {
        "alexnet": {"widths": (2, 3, 5, 7, 11), "first": 3, "stride": 1, "grid": 2, "d_model": 13},
        "vgg": {"depths": (1, 2), "widths": (3, 5), "grid": 3, "d_model": 13},
        "resnet": {"depths": (2, 1), "widths": (4, 8), "stem_width": 3},
    }[kind]
    model = build_model(MODELS.resolve(kind).Config(**small, size=31, n_classes=5)).double().eval()
    pixels = torch.randn(3, 3, 31, 31, dtype=torch.float64)
    whole = model(ImageBatch(pixels))
    for i in range(3):
        torch.testing.assert_close(model(ImageBatch(pixels[i : i + 1])), whole[i : i + 1])


def test_without_classes_the_vector_is_the_answer() -> None:
    model: Any = build_model(model_config("resnet20").changed(n_classes=0)).eval()
    batch = ImageBatch(torch.randn(2, 3, 11, 11))
    assert model(batch).equal(model.hidden(batch))
    assert model(batch).shape == (2, 64)


@pytest.mark.parametrize(
    ("kind", "table", "reason"),
    [
        ("alexnet", {"size": 32}, r"size = 32 is too small for three pooling layers; set a smaller stride"),
        ("vgg", {"size": 28}, r"size = 28 is too small to be halved by 5 stages; set size to at least 32"),
        ("vgg", {"depths": [1, 2]}, r"depths has 2 stages, but widths has 5"),
        ("resnet", {"depths": [1, 2]}, r"depths has 2 stages, but widths has 4"),
        ("resnet", {"widths": [64, 128, 256, 510]}, r"multiples of 4"),
        ("resnet", {"shortcut": "padding", "stem_width": 300}, r"needs widths that never decrease"),
        ("resnet", {"n_classes": -1}, r"n_classes"),
    ],
)
def test_what_cannot_be_built_is_said(kind: str, table: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        MODELS.resolve(kind).Config.parse(table, "[model]")


@pytest.mark.parametrize(
    ("name", "changes"),
    [("alexnet-small", {}), ("vgg11-small", {"batch_norm": False}), ("googlenet-small", {"batch_norm": False})],
)
@torch.no_grad()
def test_numbers_keep_their_size_at_first_where_no_norm_does_it(name: str, changes: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model: Any = build_model(model_config(name).changed(**changes)).eval()
    hidden = model.hidden(ImageBatch(torch.randn(5, 3, 32, 32)))
    assert 0.1 < hidden.square().mean().sqrt() < 2

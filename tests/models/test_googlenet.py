from typing import Any

import pytest
import torch
import torch.nn.functional as F

from clearformer.data.batch import ImageBatch
from clearformer.errors import ConfigError
from clearformer.models.googlenet import GoogLeNet, GoogLeNetConfig

B, N = 3, 17
SMALL: dict[str, Any] = {
    "stages": (((2, 2, 3, 2, 1, 2),), ((3, 2, 3, 2, 2, 2), (1, 1, 1, 1, 1, 1))),
    "auxiliary": ("3a", "4a"),
    "size": N,
    "n_classes": 5,
}


def build(**changes: Any) -> tuple[GoogLeNet, ImageBatch]:
    torch.manual_seed(0)
    return GoogLeNet(GoogLeNetConfig(**SMALL | changes)), ImageBatch(torch.randn(B, 3, N, N), torch.tensor([1, 0, 4]))


def test_answers_are_the_heads_and_each_auxiliary_networks() -> None:
    model, batch = build()
    model.eval()
    first, *others = model.answers(batch)
    assert first.equal(model(batch))
    assert [scores.shape for scores in others] == [(B, 5), (B, 5)]
    _, seen = model.all_features(batch.pixels)
    assert list(seen) == ["3a", "4a"]
    torch.testing.assert_close(others[1], model.auxiliary["4a"](seen["4a"]))


def test_an_auxiliary_network_teaches_the_blocks_before_it_and_no_others() -> None:
    model, batch = build()
    assert batch.classes is not None
    F.cross_entropy(model.answers(batch)[1], batch.classes).backward()
    taught = {name.split(".")[1] for name, p in model.blocks.named_parameters(prefix="blocks") if p.grad is not None}
    assert taught == {"3a"}
    assert model.classifier.weight.grad is None


def test_small_pictures_are_enlarged() -> None:
    model, batch = build(upsample=29)
    model.eval()
    large = F.interpolate(batch.pixels, size=(29, 29), mode="bilinear")
    plain = build()[0].eval()
    torch.testing.assert_close(model(batch), plain(ImageBatch(large)))
    assert not torch.allclose(model(batch), plain(batch))


def test_what_cannot_be_built_is_said() -> None:
    with pytest.raises(ConfigError, match="unknown block `6a`; choose from 3a, 4a, 4b"):
        GoogLeNetConfig.parse(SMALL | {"auxiliary": ["6a"]}, "[model]")
    with pytest.raises(ConfigError, match="with n_classes = 0, set auxiliary"):
        GoogLeNetConfig.parse(SMALL | {"n_classes": 0}, "[model]")
    with pytest.raises(ConfigError, match="size = 13 is too small for the pooling layers"):
        GoogLeNetConfig.parse(SMALL | {"size": 13}, "[model]")
    with pytest.raises(ConfigError, match="stages"):
        GoogLeNetConfig.parse(SMALL | {"stages": [[[1, 2, 3]]]}, "[model]")

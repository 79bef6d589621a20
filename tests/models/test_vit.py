from typing import Any

import pytest
import torch

from clearformer.data.batch import ImageBatch
from clearformer.errors import ConfigError
from clearformer.layers.attention import PlainCore
from clearformer.models.vit import ViT, ViTConfig

B, C, PATCH = 2, 3, 5
SMALL: dict[str, Any] = {
    "size": 15, "patch": PATCH, "n_layers": 2, "d_model": 14, "d_ff": 11, "n_heads": 7, "n_classes": 3,
}  # fmt: skip


def build(core: Any = None, **changes: Any) -> ViT:
    torch.manual_seed(0)
    return ViT(ViTConfig(**SMALL | changes), core).double().eval()


def images(size: int = 15) -> ImageBatch:
    return ImageBatch(torch.randn(B, C, size, size, dtype=torch.float64))


def test_the_fused_core_says_what_the_equation_says() -> None:
    batch = images()
    torch.testing.assert_close(build()(batch), build(PlainCore())(batch))


def test_the_order_of_patches_matters_only_by_their_positions() -> None:
    """A mean over patches that are told nothing of their places is the same for an image cut up and shuffled."""
    model, batch = build(pooling="mean"), images()
    cut = batch.pixels.unflatten(3, (3, PATCH)).unflatten(2, (3, PATCH))  # (B, C, 3, patch, 3, patch)
    shuffled = ImageBatch(cut[:, :, [2, 0, 1]][:, :, :, :, [1, 2, 0]].flatten(4, 5).flatten(2, 3))
    assert not torch.allclose(model(batch), model(shuffled))
    torch.nn.init.zeros_(model.patches.positions)
    torch.testing.assert_close(model(batch), model(shuffled))


def test_images_of_another_size() -> None:
    for pooling in ("class", "mean"):
        assert build(pooling=pooling)(images(20)).shape == (B, 3)


@pytest.mark.parametrize(
    ("table", "reason"),
    [({"patch": 4}, "size = 15 must be a multiple of patch = 4"), ({"n_heads": 5}, "must be a multiple of n_heads")],
)
def test_what_cannot_be_built_is_said(table: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        ViTConfig.parse(SMALL | table, "[model]")

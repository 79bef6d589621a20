"""Small untrained image models behind their handles."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from clearformer.data.image_sample import ImageSample
from clearformer.data.pixels import ImageConfig
from clearformer.handles.image_autoencoder import ImageAutoencoder
from clearformer.handles.image_classifier import ImageClassifier
from clearformer.handles.image_model import ImageModel
from clearformer.models.build import build_model, parse_model

CLASSES = ("cat", "dog", "owl")
SMALL: dict[str, dict[str, Any]] = {
    "resnet": {"block": "basic", "depths": [1, 1], "widths": [5, 7], "stem": "3x3", "stem_width": 5, "size": 29},
    "vit": {"size": 21, "patch": 7, "n_layers": 2, "d_model": 10, "d_ff": 13, "n_heads": 5},
    "autoencoder": {"widths": [5, 7], "d_code": 3, "size": 13},
}


@pytest.fixture
def handle() -> Callable[..., ImageModel]:
    def build(kind: str, **changes: Any) -> ImageModel:
        torch.manual_seed(0)
        config = parse_model({"kind": kind, **SMALL[kind], "channels": 1, **changes}, "x.toml")
        classes = {} if kind == "autoencoder" else {"n_classes": len(CLASSES)}
        model = build_model(config.changed(**classes)).double()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):  # else they change nothing
                nn.init.uniform_(module.weight, 0.5, 2)
                nn.init.uniform_(module.running_mean, -1, 1)  # type: ignore[arg-type]
        image = ImageConfig(size=config.size, channels=1, mean=(0.4,), std=(0.3,))
        return (ImageAutoencoder if kind == "autoencoder" else ImageClassifier)(model, image, CLASSES, kind)

    return build


@pytest.fixture
def sample() -> Callable[[ImageModel, int], ImageSample]:
    def draw(handle: ImageModel, n: int) -> ImageSample:
        size = handle.model.config.size
        pixels = np.random.default_rng(0).integers(0, 256, (n, 1, size, size), "uint8")
        return ImageSample(pixels, [CLASSES[i % 3] for i in range(n)])

    return draw

"""How images become numbers, in our words and in preprocessor_config.json, against transformers' own processors."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoImageProcessor

from clearformer.data.fitting import fitted
from clearformer.data.pixels import ImageConfig
from clearformer.errors import CheckpointError
from clearformer.interop.pixels import MEAN, STD, default_image, read_image, write_image
from clearformer.models.build import model_config


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"size": 224}, ("stretch", 224, 0.0)),  # as ViT's oldest files have it
        ({"size": {"height": 384, "width": 384}}, ("stretch", 384, 0.0)),
        ({"size": 224, "crop_pct": 0.875}, ("crop", 224, 0.0625)),  # as ResNet's
        ({"size": {"shortest_edge": 224}, "crop_pct": 0.75}, ("crop", 224, 0.125)),
        ({"size": {"shortest_edge": 384}, "crop_pct": 0.75}, ("crop", 384, 0.0)),
        (
            {"size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": {"height": 224, "width": 224}},
            ("crop", 224, 0.0625),
        ),
    ],
)
def test_what_a_folder_says(tmp_path: Path, said: dict[str, Any], found: tuple[str, int, float]) -> None:
    said = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.7], **said}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(said))
    image = read_image(tmp_path, model_config("vit-b-16"))
    assert (image.fit, image.size, image.margin) == found
    assert (image.channels, image.mean, image.std) == (3, (0.1, 0.2, 0.3), (0.4, 0.5, 0.7))


def test_what_nobody_says_is_usual(tmp_path: Path) -> None:
    image = read_image(tmp_path, model_config("resnet50"))
    assert (image.size, image.mean, image.std, image.margin) == (224, MEAN, STD, 0.0625)
    assert default_image(model_config("resnet20")).margin == 0.0
    assert default_image(model_config("googlenet-torchvision")).mean == (0.5, 0.5, 0.5)
    assert default_image(model_config("resnet20").changed(channels=1)).mean == (pytest.approx(0.449),)


def test_a_size_that_is_not_known_is_refused(tmp_path: Path) -> None:
    (tmp_path / "preprocessor_config.json").write_text('{"size": {"longest_edge": 5}}')
    with pytest.raises(CheckpointError, match="longest_edge"):
        read_image(tmp_path, model_config("resnet50"))


@pytest.mark.parametrize(("fit", "margin", "side"), [("stretch", 0.0, 37), ("crop", 0.0625, 64)])
def test_their_processor_makes_the_same_numbers(tmp_path: Path, fit: Any, margin: float, side: int) -> None:
    image = ImageConfig(size=56, channels=3, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.7), fit=fit, margin=margin)
    write_image(tmp_path, image)
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    assert read_image(tmp_path, model_config("resnet50")) == image
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8))
    theirs = AutoImageProcessor.from_pretrained(tmp_path)(noise, return_tensors="pt")["pixel_values"]
    ours = image.normalise(torch.from_numpy(fitted(noise, image).copy())[None])
    torch.testing.assert_close(ours, theirs)

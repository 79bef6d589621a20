"""Convert torchvision's ResNet, and ResNets for 32×32 images with the same tensor names, to our format and back."""

import re
from collections.abc import Mapping
from typing import Any

import torch

from clearformer.errors import CheckpointError
from clearformer.interop.names import Rows, conv_rows, rows_of
from clearformer.layers.residual import N_CONVS, BlockKind
from clearformer.models.resnet import ResNetConfig

FIXED: dict[str, Any] = {}


def matches(shapes: Mapping[str, torch.Size]) -> bool:
    return "layer1.0.conv1.weight" in shapes


def read(shapes: Mapping[str, torch.Size]) -> ResNetConfig:
    """Infer the configuration. Names show the depths; shortcuts without `downsample` are zero-padded (option A)."""
    blocks = {(int(m[1]), int(m[2])) for m in (re.match(r"layer(\d+)\.(\d+)\.", name) for name in shapes) if m}
    stages = sorted({stage for stage, _ in blocks})
    block: BlockKind = "bottleneck" if "layer1.0.conv3.weight" in shapes else "basic"
    width, channels, side, _ = shapes["conv1.weight"]
    return ResNetConfig(
        size=224 if side == 7 else 32,
        channels=channels,
        stem="7x7" if side == 7 else "3x3",
        stem_width=width,
        block=block,
        depths=tuple(sum(stage == i for i, _ in blocks) for stage in stages),
        widths=tuple(shapes[f"layer{stage}.0.conv{N_CONVS[block]}.weight"][0] for stage in stages),
        shortcut="projection" if any(".downsample." in name for name in shapes) else "padding",
        n_classes=shapes["fc.weight"][0],
    )


def tensor_rows(config: ResNetConfig) -> Rows:
    if config.shortcut == "none":
        raise CheckpointError(
            "torchvision has no ResNet without shortcuts",
            "only models with shortcut = projection or padding can be exported",
        )
    rows = {**rows_of({"classifier.": "fc."}), **conv_rows("stem.", "conv1.", "bn1.")}
    for place in config.block_shapes:
        ours, theirs = f"stages.{place.stage}.{place.number}.", f"layer{place.stage + 1}.{place.number}."
        for i in range(N_CONVS[config.block]):
            rows |= conv_rows(f"{ours}path.{i}.", f"{theirs}conv{i + 1}.", f"{theirs}bn{i + 1}.")
        if config.shortcut == "projection" and not place.keeps_shape:
            rows |= conv_rows(f"{ours}shortcut.", f"{theirs}downsample.0.", f"{theirs}downsample.1.")
    return rows

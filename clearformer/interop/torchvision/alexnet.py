"""Convert torchvision's AlexNet to our format and back. Its indices in `features` also count ReLUs and pooling."""

from collections.abc import Mapping
from math import isqrt
from typing import Any

import torch

from clearformer.interop.names import Rows, rows_of
from clearformer.models.alexnet import AlexNetConfig

FIXED: dict[str, Any] = {"first": 11, "stride": 4, "padding": 2, "local_norm": False, "grid": 6}
CONVS = {"conv1": 0, "conv2": 3, "conv3": 6, "conv4": 8, "conv5": 10}  # index in `features`


def matches(shapes: Mapping[str, torch.Size]) -> bool:
    return "features.0.weight" in shapes and shapes["features.0.weight"][-1] == FIXED["first"]


def read(shapes: Mapping[str, torch.Size]) -> AlexNetConfig:
    widths = tuple(shapes[f"features.{i}.weight"][0] for i in CONVS.values())
    d_model, n_inputs = shapes["classifier.1.weight"]
    return AlexNetConfig(
        **{**FIXED, "grid": isqrt(n_inputs // widths[-1])},
        size=224,
        channels=shapes["features.0.weight"][1],
        widths=widths,
        d_model=d_model,
        n_classes=shapes["classifier.6.weight"][0],
    )


def tensor_rows(config: AlexNetConfig) -> Rows:
    convs = {f"layers.{name}.conv.": f"features.{i}." for name, i in CONVS.items()}
    return rows_of({**convs, "dense.1.": "classifier.1.", "dense.4.": "classifier.4.", "classifier.": "classifier.6."})

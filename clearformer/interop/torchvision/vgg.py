"""Convert torchvision's VGG to our format and back. Its indices in `features` also count norms, ReLUs and pooling."""

from collections.abc import Mapping
from itertools import pairwise
from math import isqrt
from typing import Any

import torch

from clearformer.interop.names import BATCH_NORM, Rows, rows_of
from clearformer.models.vgg import VGGConfig

FIXED: dict[str, Any] = {"grid": 7}
DENSE = {"dense.1.": "classifier.0.", "dense.4.": "classifier.3.", "classifier.": "classifier.6."}


def matches(shapes: Mapping[str, torch.Size]) -> bool:
    return "features.0.weight" in shapes and shapes["features.0.weight"][-1] == 3


def read(shapes: Mapping[str, torch.Size]) -> VGGConfig:
    """Infer the configuration. A gap in the numbering of the convolutions is a pooling layer, which ends a stage."""
    convs = sorted(int(name.split(".")[1]) for name, shape in shapes.items() if len(shape) == 4)
    batch_norm = "features.1.running_mean" in shapes
    ends = [i for i, j in pairwise(convs) if j - i > modules_per_conv(batch_norm)] + convs[-1:]
    stops = [convs.index(i) + 1 for i in ends]
    widths = tuple(shapes[f"features.{i}.weight"][0] for i in ends)
    d_model, n_inputs = shapes["classifier.0.weight"]
    return VGGConfig(
        channels=shapes["features.0.weight"][1],
        depths=tuple(stop - start for start, stop in zip([0, *stops], stops)),
        widths=widths,
        batch_norm=batch_norm,
        grid=isqrt(n_inputs // widths[-1]),
        d_model=d_model,
        n_classes=shapes["classifier.6.weight"][0],
    )


def modules_per_conv(batch_norm: bool) -> int:
    """Return how many entries of `features` belong to a convolution: itself, its norm if any, and its ReLU."""
    return 3 if batch_norm else 2


def tensor_rows(config: VGGConfig) -> Rows:
    rows, index = rows_of(DENSE), 0
    for stage, n_convs in enumerate(config.depths):
        for i in range(n_convs):
            rows |= rows_of({f"stages.{stage}.{i}.conv.": f"features.{index}."})
            if config.batch_norm:
                rows |= rows_of({f"stages.{stage}.{i}.norm.": f"features.{index + 1}."}, BATCH_NORM)
            index += modules_per_conv(config.batch_norm)
        index += 1
    return rows

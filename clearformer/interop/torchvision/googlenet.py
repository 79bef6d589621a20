"""Convert torchvision's GoogLeNet to our format and back, with or without the auxiliary classifiers."""

from collections.abc import Mapping
from typing import Any

import torch

from clearformer.interop.names import Rows, conv_rows, rows_of
from clearformer.models.googlenet import STAGES, GoogLeNetConfig, named_blocks

FIXED: dict[str, Any] = {
    "upsample": None, "stem": True, "stages": STAGES, "batch_norm": True, "large": 3, "last_pool": 2,
}  # fmt: skip
STEM = {"stem.0.": "conv1.", "stem.3.": "conv2.", "stem.4.": "conv3."}
BRANCHES = {
    "one.": "branch1.", "three.0.": "branch2.0.", "three.1.": "branch2.1.",
    "five.0.": "branch3.0.", "five.1.": "branch3.1.", "pool.1.": "branch4.1.",
}  # fmt: skip
AUXILIARY = {"4a": "aux1.", "4d": "aux2."}


def matches(shapes: Mapping[str, torch.Size]) -> bool:
    return "inception3a.branch1.conv.weight" in shapes


def read(shapes: Mapping[str, torch.Size]) -> GoogLeNetConfig:
    return GoogLeNetConfig(
        **FIXED,
        channels=shapes["conv1.conv.weight"][1],
        auxiliary=tuple(name for name, theirs in AUXILIARY.items() if f"{theirs}fc1.weight" in shapes),
        n_classes=shapes["fc.weight"][0],
        dropout=0.2,
    )


def tensor_rows(config: GoogLeNetConfig) -> Rows:
    convs, rows = dict(STEM), rows_of({"classifier.": "fc."})
    for name, _ in named_blocks(config.stages):
        convs |= {f"blocks.{name}.{ours}": f"inception{name}.{theirs}" for ours, theirs in BRANCHES.items()}
    for name in config.auxiliary:
        ours, theirs = f"auxiliary.{name}.", AUXILIARY[name]
        convs[f"{ours}conv."] = f"{theirs}conv."
        rows |= rows_of({f"{ours}dense.": f"{theirs}fc1.", f"{ours}classifier.": f"{theirs}fc2."})
    for ours, theirs in convs.items():
        rows |= conv_rows(ours, f"{theirs}conv.", f"{theirs}bn.")
    return rows

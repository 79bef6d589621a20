"""torchvision's AlexNet, VGG, GoogLeNet, ResNet and ViT, to ours and back, one file each.

There is no configuration beside such weights: names and shapes say which network it is, and how large. Files from
elsewhere may have `module.` before every name, the head called `linear`, and no count of the batches that a norm saw.
"""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from clearformer.config import Config
from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.settings import fit
from clearformer.interop.names import Rows, to_ours, to_theirs
from clearformer.interop.torchvision import alexnet, googlenet, resnet, vgg, vit

CONVERTERS: dict[str, Any] = {  # kind -> the module that has its `is_one`, `read`, `tensor_rows` and FIXED
    "alexnet": alexnet,
    "vgg": vgg,
    "googlenet": googlenet,
    "resnet": resnet,
    "vit": vit,
}
OLD = {"linear.": "fc.", "mlp.linear_1.": "mlp.0.", "mlp.linear_2.": "mlp.3."}  # other names for the same


def import_weights(theirs: Mapping[str, Tensor], where: str) -> tuple[Any, dict[str, Tensor]]:
    """The configuration that the tensors show, and the tensors under our names."""
    theirs = {modern(name): tensor for name, tensor in theirs.items()}
    config = recognise({name: tensor.shape for name, tensor in theirs.items()}, where)
    rows = tensor_rows(config)
    uncounted = {name for (name,) in rows.values() if name.endswith("num_batches_tracked")} - theirs.keys()
    return config, to_ours({**theirs, **{name: torch.tensor(0) for name in uncounted}}, rows, where)


def export_weights(ours: Mapping[str, Tensor], config: Any) -> dict[str, Tensor]:
    """For `load_state_dict` of the same network."""
    if config.kind not in CONVERTERS:
        raise CheckpointError(f"torchvision has no model of the kind `{config.kind}`", "only pictures' go there")
    fit(config.model_dump(), CONVERTERS[config.kind].FIXED, f"torchvision's {config.kind}")
    return to_theirs(ours, tensor_rows(config), "the model")


def modern(name: str) -> str:
    name = name.removeprefix("module.")
    for old, new in OLD.items():
        name = re.sub(rf"(^|\.){re.escape(old)}", rf"\g<1>{new}", name)
    return name


def recognise(shapes: Mapping[str, torch.Size], where: str) -> Config:
    """The configuration of the network that has tensors of these names and shapes."""
    try:
        return next(module.read(shapes) for module in CONVERTERS.values() if module.is_one(shapes))
    except (StopIteration, KeyError, IndexError, ValueError):  # none of them, or not the whole of one
        raise CheckpointError(
            f"{where} holds no network that is known by its tensors",
            "known are torchvision's AlexNet, VGG, GoogLeNet, ResNet and ViT",
        ) from None


def tensor_rows(config: Any) -> Rows:
    """Every tensor of ours, and theirs."""
    rows: Rows = CONVERTERS[config.kind].tensor_rows(config)
    return rows

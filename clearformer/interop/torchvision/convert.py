"""Convert torchvision's AlexNet, VGG, GoogLeNet, ResNet and ViT to our format and back, each in its own module.

These weights come without a configuration: the names and shapes of the tensors show the architecture and its sizes.
In files from other sources, names may start with `module.`, the head may be called `linear`, and the tensors
`num_batches_tracked` may be missing.
"""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from clearformer.config import Config
from clearformer.errors import CheckpointError
from clearformer.interop.huggingface.settings import require_fields
from clearformer.interop.names import Rows, to_ours, to_theirs
from clearformer.interop.torchvision import alexnet, googlenet, resnet, vgg, vit
from clearformer.wording import listed

CONVERTERS: dict[str, Any] = {  # kind -> module with `matches`, `read`, `tensor_rows` and FIXED
    "alexnet": alexnet,
    "vgg": vgg,
    "googlenet": googlenet,
    "resnet": resnet,
    "vit": vit,
}
OLD_NAMES = {"linear.": "fc.", "mlp.linear_1.": "mlp.0.", "mlp.linear_2.": "mlp.3."}


def import_weights(theirs: Mapping[str, Tensor], where: str) -> tuple[Any, dict[str, Tensor]]:
    """Return our configuration, inferred from the tensors, and the tensors under our names."""
    theirs = {modern_name(name): tensor for name, tensor in theirs.items()}
    config = recognise({name: tensor.shape for name, tensor in theirs.items()}, where)
    rows = tensor_rows(config)
    uncounted = {name for (name,) in rows.values() if name.endswith("num_batches_tracked")} - theirs.keys()
    return config, to_ours({**theirs, **{name: torch.tensor(0) for name in uncounted}}, rows, where)


def export_weights(ours: Mapping[str, Tensor], config: Any) -> dict[str, Tensor]:
    """Convert our tensors to the state dict of torchvision's network."""
    if config.kind not in CONVERTERS:
        raise CheckpointError(
            f"a model of architecture `{config.kind}` cannot be exported to torchvision",
            f"the architectures that can be exported are {listed(CONVERTERS)}",
        )
    require_fields(config.model_dump(), CONVERTERS[config.kind].FIXED, f"torchvision's {config.kind}")
    return to_theirs(ours, tensor_rows(config), "the model")


def modern_name(name: str) -> str:
    name = name.removeprefix("module.")
    for old, new in OLD_NAMES.items():
        name = re.sub(rf"(^|\.){re.escape(old)}", rf"\g<1>{new}", name)
    return name


def recognise(shapes: Mapping[str, torch.Size], where: str) -> Config:
    """Infer the configuration of a network from the names and shapes of its tensors."""
    try:
        return next(module.read(shapes) for module in CONVERTERS.values() if module.matches(shapes))
    except (StopIteration, KeyError, IndexError, ValueError):  # no match, or an incomplete one
        raise CheckpointError(
            f"{where} does not contain the weights of a supported network",
            "the supported networks are torchvision's AlexNet, VGG, GoogLeNet, ResNet and ViT",
        ) from None


def tensor_rows(config: Any) -> Rows:
    """Return the table rows for all tensors of a network with this configuration."""
    rows: Rows = CONVERTERS[config.kind].tensor_rows(config)
    return rows

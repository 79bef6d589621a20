"""What a network looks for first: the filters of its first convolution, as the pictures that excite them most."""

from typing import Any

import numpy as np
from torch import nn

from clearformer.errors import ConfigError
from clearformer.handles.image_model import ImageModel
from clearformer.lens.shown import shown

MOST = 64  # filters shown


def look(eye: ImageModel) -> dict[str, Any]:
    """The numbers that `clearformer plot filters` draws: each filter from its lowest weight, black, to its highest."""
    found = {name: module for name, module in eye.model.named_modules() if isinstance(module, nn.Conv2d)}
    if not found:
        raise ConfigError(f"{eye.name} has no filters", "choose a network with convolutions or patches")
    name, conv = next(iter(found.items()))
    weights = conv.weight.detach().float().cpu().numpy()  # (O, C, F, F)
    low, high = (edge(weights, axis=(1, 2, 3), keepdims=True) for edge in (np.min, np.max))
    tiles = (255 * (weights - low) / np.maximum(high - low, 1e-12)).round().astype("uint8")
    O, C, F, _ = weights.shape
    if C not in (1, 3):  # what has no colour is shown by its first channel
        tiles = tiles[:, :1]
    return {
        "title": f"The {O} filters of {eye.name}'s {name}, {F}×{F}" + (f": {MOST} of them" if O > MOST else ""),
        "layer": name,
        "tiles": shown(tiles[:MOST]),
        "captions": [""] * len(tiles[:MOST]),
    }

"""The filters of the first convolution of a network. A filter responds most to the input that looks like it."""

from typing import Any

import numpy as np
from torch import nn

from clearformer.errors import ConfigError
from clearformer.handles.image_model import ImageModel
from clearformer.lens.shown import shown
from clearformer.wording import count

MOST = 64  # filters shown


def look(handle: ImageModel) -> dict[str, Any]:
    """Compute the data for `clearformer plot filters`. The weights of each filter are scaled to 0 … 255."""
    convolutions = {name: module for name, module in handle.model.named_modules() if isinstance(module, nn.Conv2d)}
    if not convolutions:
        raise ConfigError(f"{handle.name} has no convolution filters", "choose a network with convolutions or patches")
    name, conv = next(iter(convolutions.items()))
    weights = conv.weight.detach().float().cpu().numpy()  # (O, C, F, F)
    low, high = (edge(weights, axis=(1, 2, 3), keepdims=True) for edge in (np.min, np.max))
    tiles = (255 * (weights - low) / np.maximum(high - low, 1e-12)).round().astype("uint8")
    O, C, F, _ = weights.shape
    if C not in (1, 3):  # not colours: only the first channel is shown
        tiles = tiles[:, :1]
    return {
        "title": f"{f'{MOST} of ' if O > MOST else ''}{count(O, 'filter')} ({F}×{F}) of {handle.name}, layer {name}",
        "layer": name,
        "tiles": shown(tiles[:MOST]),
        "captions": [""] * len(tiles[:MOST]),
    }

"""The feature maps of one layer for one image, in order of decreasing variance."""

from typing import Any

import torch

from clearformer.data.image_sample import ImageSample
from clearformer.handles.image_model import ImageModel
from clearformer.lens.maps import laid_out, maps_of, pick
from clearformer.lens.shown import shown
from clearformer.wording import count

MOST = 31  # maps shown, after the image


@torch.no_grad()
def look(handle: ImageModel, sample: ImageSample, layer: str | None = None) -> dict[str, Any]:
    """Compute the data for `clearformer plot features` from the first image, by default in the first layer."""
    maps_by_layer, _ = maps_of(handle.model, handle.batch(sample.pixels[:1]))
    name = pick(maps_by_layer, layer, 0)
    maps = laid_out(maps_by_layer[name])[0].float()  # (C, Y, X)
    order = maps.flatten(1).var(1).argsort(descending=True, stable=True)[:MOST]
    C, Y, X = maps.shape
    label, selection = sample.labels[0], f"{MOST} of " if C > MOST else ""
    return {
        "title": f"{selection}{count(C, 'feature map')} ({Y}×{X}) of {handle.name}, layer {name}",
        "layer": name,
        "layers": list(maps_by_layer),
        "channels": order.tolist(),
        "tiles": [shown(sample.pixels[:1])[0], *maps[order].tolist()],
        "captions": [f"image: {label}" if label else "image", *(str(channel) for channel in order.tolist())],
    }

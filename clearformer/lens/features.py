"""What one layer makes of a picture: its maps, those that differ most from place to place first."""

from typing import Any

import torch

from clearformer.data.album import Album
from clearformer.handles.image_model import ImageModel
from clearformer.lens.maps import laid_out, maps_of, pick
from clearformer.lens.shown import shown

MOST = 31  # maps shown, beside the picture


@torch.no_grad()
def look(eye: ImageModel, album: Album, layer: str | None = None) -> dict[str, Any]:
    """The numbers that `clearformer plot features` draws, of the first picture; the first layer if none is named."""
    found, _ = maps_of(eye.model, eye.batch(album.pixels[:1]))
    name = pick(found, layer, 0)
    maps = laid_out(found[name])[0].float()  # (C, Y, X)
    order = maps.flatten(1).var(1).argsort(descending=True, stable=True)[:MOST]
    C, Y, X = maps.shape
    label = album.labels[0]
    shares = f"All {C}" if C <= MOST else f"{MOST} of the {C}"
    return {
        "title": f"{shares} maps of {eye.name}'s {name}, {Y}×{X}",
        "layer": name,
        "layers": list(found),
        "channels": order.tolist(),
        "tiles": [shown(album.pixels[:1])[0], *maps[order].tolist()],
        "captions": [f"picture: {label}" if label else "picture", *(str(channel) for channel in order.tolist())],
    }

"""What a shift of the picture does to each layer.

    equivariant    f(T_d x) = T_{d/j} f(x)         the map moves along; j pixels from one of its places to the next
    invariant      f(T_d x) = f(x)                 the map stays as it is

T_d moves everything d pixels down and right. Both sides are held against one another by their correlation, over all
pictures and channels, away from the edges: by the receptive field, wherever it leaves something of the map, else only
from what has left the picture. A convolution of stride 1 is equivariant exactly; one of stride S, and a pool, only to
shifts by multiples of S; and what is averaged over all places is the more invariant the more places there are.
"""

from math import ceil
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearformer.data.album import Album
from clearformer.handles.image_model import ImageModel
from clearformer.layers.geometry import ReceptiveField
from clearformer.layers.receptive import Sight
from clearformer.lens.maps import laid_out, maps_of

SHIFTS = (1, 2, 4, 8, 16)  # pixels, up to a quarter of the picture


@torch.no_grad()
def measure(eye: ImageModel, album: Album) -> dict[str, Any]:
    """The numbers that `clearformer plot shifts` draws."""
    model, batch = eye.model, eye.batch(album.pixels)
    with Sight(batch.pixels) as sight:
        still, vectors = maps_of(model, batch)
    fields = {name: sight.of(found) for name, found in still.items()}
    lines: dict[str, Any] = {
        name: {"step": field.step, "sees": field.size, "equivariance": [], "invariance": []}
        for name, field in fields.items()
        if field is not None
    }
    distances = [d for d in SHIFTS if 4 * d <= album.pixels.shape[-1]] or [1]
    hidden = []
    for d in distances:
        moved = eye.batch(np.roll(album.pixels, (d, d), (2, 3)))
        after, other = maps_of(model, moved)
        for name, line in lines.items():
            field = ReceptiveField(line["sees"], line["step"])
            along, stayed = compare(laid_out(still[name]), laid_out(after[name]), d, field)
            line["equivariance"].append(along)
            line["invariance"].append(stayed)
        hidden.append(likeness(vectors, other))
    return {
        "title": f"When pictures move by {distances[-1]} pixels, what {eye.name}'s head reads correlates at "
        f"{hidden[-1]:.2f} with what it read before",
        "pictures": len(album.pixels),
        "shifts": distances,
        "layers": lines,
        "hidden": hidden,
    }


def compare(still: Tensor, moved: Tensor, d: int, field: ReceptiveField) -> tuple[float, float]:
    """Maps (B, C, Y, X) before and after a shift by d pixels: how far the second is the first moved, and unmoved."""
    n, s = still.size(-1), round(d / field.step)
    margin = ceil((field.size - 1) / 2 / field.step)
    if n - 2 * margin - s < 1:
        margin = 0
    before, after = slice(margin, n - margin - s), slice(margin + s, n - margin)
    told = moved[..., after, after]
    return likeness(still[..., before, before], told), likeness(still[..., after, after], told)


def likeness(a: Tensor, b: Tensor) -> float:
    """The correlation of all their numbers, in float64; 1 of what is the same, were it constant."""
    a, b = a.flatten().double(), b.flatten().double()
    return 1.0 if a.equal(b) else float(torch.corrcoef(torch.stack([a, b]))[0, 1].nan_to_num())

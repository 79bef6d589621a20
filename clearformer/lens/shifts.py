"""How a shift of the image changes the output of each layer.

    equivariant    f(T_d x) = T_{d/j} f(x)         the map moves along; j pixels from one of its places to the next
    invariant      f(T_d x) = f(x)                 the map stays as it is

T_d moves the image d pixels down and right. Both sides are compared by their correlation over all images and channels.
The edges are left out: as far as the receptive field reaches, if that leaves any of the map, else only the part that
was shifted out of the image. A convolution of stride 1 is equivariant exactly; one of stride S, and a pool, only to
shifts by multiples of S. An average over all places is the more invariant the more places there are.
"""

from math import ceil
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearformer.data.image_sample import ImageSample
from clearformer.handles.image_model import ImageModel
from clearformer.layers.geometry import ReceptiveField
from clearformer.layers.receptive import Sight
from clearformer.lens.maps import laid_out, maps_of

SHIFTS = (1, 2, 4, 8, 16)  # pixels, up to a quarter of the image


@torch.no_grad()
def measure(handle: ImageModel, sample: ImageSample) -> dict[str, Any]:
    """The numbers that `clearformer plot shifts` draws."""
    model, batch = handle.model, handle.batch(sample.pixels)
    with Sight(batch.pixels) as sight:
        still, vectors = maps_of(model, batch)
    fields = {name: sight.of(maps) for name, maps in still.items()}
    lines: dict[str, Any] = {
        name: {"step": field.step, "sees": field.size, "equivariance": [], "invariance": []}
        for name, field in fields.items()
        if field is not None
    }
    distances = [d for d in SHIFTS if 4 * d <= sample.pixels.shape[-1]] or [1]
    hidden = []
    for d in distances:
        moved = handle.batch(np.roll(sample.pixels, (d, d), (2, 3)))
        after, other = maps_of(model, moved)
        for name, line in lines.items():
            field = ReceptiveField(line["sees"], line["step"])
            along, stayed = compare(laid_out(still[name]), laid_out(after[name]), d, field)
            line["equivariance"].append(along)
            line["invariance"].append(stayed)
        hidden.append(likeness(vectors, other))
    return {
        "title": f"When images move by {distances[-1]} pixels, what {handle.name}'s head reads correlates at "
        f"{hidden[-1]:.2f} with what it read before",
        "pictures": len(sample.pixels),
        "shifts": distances,
        "layers": lines,
        "hidden": hidden,
    }


def compare(still: Tensor, moved: Tensor, d: int, field: ReceptiveField) -> tuple[float, float]:
    """Maps (B, C, Y, X) before and after a shift by d pixels: how well the second is the first moved, and unmoved."""
    n, s = still.size(-1), round(d / field.step)
    margin = ceil((field.size - 1) / 2 / field.step)
    if n - 2 * margin - s < 1:
        margin = 0
    before, after = slice(margin, n - margin - s), slice(margin + s, n - margin)
    shifted = moved[..., after, after]
    return likeness(still[..., before, before], shifted), likeness(still[..., after, after], shifted)


def likeness(a: Tensor, b: Tensor) -> float:
    """The correlation of all their numbers, in float64; 1 for equal tensors, even constant ones."""
    a, b = a.flatten().double(), b.flatten().double()
    return 1.0 if a.equal(b) else float(torch.corrcoef(torch.stack([a, b]))[0, 1].nan_to_num())

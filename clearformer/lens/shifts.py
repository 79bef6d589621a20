"""Measure how a shift of the image changes the output of each layer.

    equivariant    f(T_d x) = T_{d/j} f(x)         the map shifts with the image; its positions are j pixels apart
    invariant      f(T_d x) = f(x)                 the map does not change

T_d shifts the image by d pixels down and right. The two sides of each equation are compared by their correlation over
all images and channels. The edges of the map are excluded: a margin of half the receptive field if anything remains,
otherwise only the part that was shifted out of the image. A convolution of stride 1 is exactly equivariant. With stride
S, convolution and pooling are equivariant only for shifts by multiples of S. The more positions a layer averages over,
the closer it is to invariance.
"""

from math import ceil
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearformer.data.image_sample import ImageSample
from clearformer.handles.image_model import ImageModel
from clearformer.layers.geometry import ReceptiveField
from clearformer.layers.receptive import ReceptiveFields
from clearformer.lens.maps import laid_out, maps_of
from clearformer.wording import count

SHIFTS = (1, 2, 4, 8, 16)  # pixels, up to a quarter of the image


@torch.no_grad()
def measure(handle: ImageModel, sample: ImageSample) -> dict[str, Any]:
    """Compute the data for `clearformer plot shifts`."""
    model, batch = handle.model, handle.batch(sample.pixels)
    with ReceptiveFields(batch.pixels) as receptive:
        still, vectors = maps_of(model, batch)
    fields = {name: receptive.of(maps) for name, maps in still.items()}
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
        hidden.append(correlation(vectors, other))
    return {
        "title": f"After a shift by {count(distances[-1], 'pixel')}, the input of {handle.name}'s head has a "
        f"correlation of {hidden[-1]:.2f} with the original",
        "images": len(sample.pixels),
        "shifts": distances,
        "layers": lines,
        "hidden": hidden,
    }


def compare(still: Tensor, moved: Tensor, d: int, field: ReceptiveField) -> tuple[float, float]:
    """Return two correlations of maps `moved` (B, C, Y, X): with `still` shifted by d pixels, and with `still`."""
    n, s = still.size(-1), round(d / field.step)
    margin = ceil((field.size - 1) / 2 / field.step)
    if n - 2 * margin - s < 1:
        margin = 0
    before, after = slice(margin, n - margin - s), slice(margin + s, n - margin)
    shifted = moved[..., after, after]
    return correlation(still[..., before, before], shifted), correlation(still[..., after, after], shifted)


def correlation(a: Tensor, b: Tensor) -> float:
    """Return the correlation over all elements, in float64. It is 1 for equal tensors, even constant ones."""
    a, b = a.flatten().double(), b.flatten().double()
    return 1.0 if a.equal(b) else float(torch.corrcoef(torch.stack([a, b]))[0, 1].nan_to_num())

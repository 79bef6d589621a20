"""Grad-CAM: which places of an image support the predicted class (Selvaraju et al. 2017, eq. 1 and 2).

    α_c = mean over places of ∂ score / ∂ A_c(i, j)        how much the class score depends on map c
    L   = relu(Σ_c α_c A_c)                                the evidence for the class at each place

Where the head is a matrix over the mean of A, α_c is its weight for the class, divided by the number of places.
"""

from typing import Any

import torch
from torch import Tensor

from clearformer.data.batch import ImageBatch
from clearformer.data.image_sample import ImageSample
from clearformer.errors import ConfigError
from clearformer.handles.image_classifier import ImageClassifier
from clearformer.handles.image_model import ImageModel
from clearformer.lens.maps import laid_out, maps_of, pick
from clearformer.lens.shown import shown


def grad_cam(model: Any, batch: ImageBatch, layer: str | None = None) -> tuple[Tensor, Tensor, str]:
    """L (B, Y, X) for the likeliest class of each image; the scores (B, K); the layer, by default the last one."""
    maps_by_layer, hidden = maps_of(model, batch)
    scores = model.head(hidden)
    name = pick(maps_by_layer, layer, -1)
    [slope] = torch.autograd.grad(scores.amax(1).sum(), maps_by_layer[name])
    maps, slope = laid_out(maps_by_layer[name]), laid_out(slope)  # (B, C, Y, X)
    weights = slope.mean((2, 3), keepdim=True)  # (B, C, 1, 1)
    return (weights * maps).sum(1).relu().detach(), scores.detach(), name


def explain(handle: ImageModel, sample: ImageSample, layer: str | None = None) -> dict[str, Any]:
    """The numbers that `clearformer plot grad-cam` draws."""
    if not isinstance(handle, ImageClassifier):
        raise ConfigError(f"{handle.name} is not a classifier", "choose an image classifier")
    heat, scores, name = grad_cam(handle.model, handle.batch(sample.pixels), layer)
    best = scores.softmax(-1).max(-1)
    labels = [handle.classes[k] for k in best.indices.tolist()]
    return {
        "title": f"What speaks for the class that {handle.name} names, at {name}",
        "layer": name,
        "pictures": shown(sample.pixels),
        "captions": [f"{label} {share:.0%}" for label, share in zip(labels, best.values.tolist())],
        "heat": heat.tolist(),
    }

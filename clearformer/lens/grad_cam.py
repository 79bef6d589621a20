"""Grad-CAM: the image regions that support the predicted class (Selvaraju et al. 2017, eq. 1 and 2).

    α_c = mean over positions of ∂ logit / ∂ A_c(i, j)     how much the logit of the class depends on map c
    L   = relu(Σ_c α_c A_c)                                the evidence for the class at each position

If the head is a linear layer on the mean of A, α_c is its weight for the class, divided by the number of positions.
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
    """Return heatmaps L (B, Y, X) of the most probable classes, logits (B, K) and the layer, by default the last."""
    maps_by_layer, hidden = maps_of(model, batch)
    logits = model.head(hidden)
    name = pick(maps_by_layer, layer, -1)
    [slope] = torch.autograd.grad(logits.amax(1).sum(), maps_by_layer[name])
    maps, slope = laid_out(maps_by_layer[name]), laid_out(slope)  # (B, C, Y, X)
    weights = slope.mean((2, 3), keepdim=True)  # (B, C, 1, 1)
    return (weights * maps).sum(1).relu().detach(), logits.detach(), name


def explain(handle: ImageModel, sample: ImageSample, layer: str | None = None) -> dict[str, Any]:
    """Compute the data for `clearformer plot grad-cam`."""
    if not isinstance(handle, ImageClassifier):
        raise ConfigError(f"{handle.name} is not an image classifier", "choose a --model that classifies images")
    heat, logits, name = grad_cam(handle.model, handle.batch(sample.pixels), layer)
    best = logits.softmax(-1).max(-1)
    labels = [handle.classes[k] for k in best.indices.tolist()]
    return {
        "title": f"Evidence for the class that {handle.name} predicts, at layer {name}",
        "layer": name,
        "images": shown(sample.pixels),
        "captions": [f"{label} {probability:.0%}" for label, probability in zip(labels, best.values.tolist())],
        "heat": heat.tolist(),
    }

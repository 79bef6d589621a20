"""Grad-CAM: the image regions that support the predicted class, or another one (Selvaraju et al. 2017, eq. 1 and 2).

    α_c = mean over positions of ∂ logit / ∂ A_c(i, j)     how much the logit of the class depends on map c
    L   = relu(Σ_c α_c A_c)                                the evidence for the class at each position

If the head is a linear layer on the mean of A, α_c is its weight for the class, divided by the number of positions.
"""

from typing import Any

import torch
from torch import Tensor

from clearformer.data.batch import ImageBatch
from clearformer.data.image_sample import ImageSample
from clearformer.errors import ConfigError, suggest
from clearformer.handles.image_classifier import ImageClassifier
from clearformer.handles.image_model import ImageModel
from clearformer.lens.maps import laid_out, maps_of, pick
from clearformer.lens.shown import shown


def grad_cam(
    model: Any, batch: ImageBatch, layer: str | None = None, k: int | None = None
) -> tuple[Tensor, Tensor, str]:
    """Return heatmaps L (B, Y, X) of class k, logits (B, K) and the layer, by default the last.

    Without k, each image has the heatmap of its most probable class.
    """
    maps_by_layer, hidden = maps_of(model, batch)
    logits = model.head(hidden)
    name = pick(maps_by_layer, layer, -1)
    chosen = logits.amax(1) if k is None else logits[:, k]
    [slope] = torch.autograd.grad(chosen.sum(), maps_by_layer[name])
    maps, slope = laid_out(maps_by_layer[name]), laid_out(slope)  # (B, C, Y, X)
    weights = slope.mean((2, 3), keepdim=True)  # (B, C, 1, 1)
    return (weights * maps).sum(1).relu().detach(), logits.detach(), name


def explain(
    handle: ImageModel, sample: ImageSample, layer: str | None = None, label: str | None = None
) -> dict[str, Any]:
    """Compute the data for `clearformer plot grad-cam`. `label` is a class, by default the predicted one."""
    if not isinstance(handle, ImageClassifier):
        raise ConfigError(f"{handle.name} is not an image classifier", "choose a --model that classifies images")
    if label is not None and label not in handle.classes:
        raise ConfigError(f"{handle.name} has no class `{label}`", suggest(label, handle.classes))
    k = None if label is None else handle.classes.index(label)
    heat, logits, name = grad_cam(handle.model, handle.batch(sample.pixels), layer, k)
    probabilities = logits.softmax(-1)
    chosen = probabilities.argmax(-1) if k is None else torch.full((len(logits),), k, device=logits.device)
    values = probabilities.gather(1, chosen[:, None])[:, 0].tolist()
    labels = [handle.classes[i] for i in chosen.tolist()]
    what = f"the class that {handle.name} predicts" if label is None else f"the class {label} in {handle.name}"
    return {
        "title": f"Evidence for {what}, at layer {name}",
        "layer": name,
        "images": shown(sample.pixels),
        "captions": [f"{label} {probability:.0%}" for label, probability in zip(labels, values)],
        "heat": heat.tolist(),
    }

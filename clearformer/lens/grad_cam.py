"""Grad-CAM: where a network sees what it says (Selvaraju et al. 2017, eq. 1 and 2).

    α_c = mean over places of ∂ score / ∂ A_c(i, j)        how much the class hangs on map c
    L   = relu(Σ_c α_c A_c)                                what speaks for the class, place by place

Where the head is a matrix over the mean of A, α_c is its weight for the class, divided by the number of places.
"""

from typing import Any

import torch
from torch import Tensor

from clearformer.data.album import Album
from clearformer.data.batch import ImageBatch
from clearformer.errors import ConfigError
from clearformer.handles.image_classifier import ImageClassifier
from clearformer.handles.image_model import ImageModel
from clearformer.lens.maps import laid_out, maps_of, pick
from clearformer.lens.shown import shown


def grad_cam(model: Any, batch: ImageBatch, layer: str | None = None) -> tuple[Tensor, Tensor, str]:
    """L (B, Y, X) for the likeliest class of each picture; the scores (B, K); the layer, by default the last map."""
    found, hidden = maps_of(model, batch)
    scores = model.head(hidden)
    name = pick(found, layer, -1)
    [slope] = torch.autograd.grad(scores.amax(1).sum(), found[name])
    maps, slope = laid_out(found[name]), laid_out(slope)  # (B, C, Y, X)
    weights = slope.mean((2, 3), keepdim=True)  # (B, C, 1, 1)
    return (weights * maps).sum(1).relu().detach(), scores.detach(), name


def explain(eye: ImageModel, album: Album, layer: str | None = None) -> dict[str, Any]:
    """The numbers that `clearformer plot grad-cam` draws."""
    if not isinstance(eye, ImageClassifier):
        raise ConfigError(f"{eye.name} tells no classes apart", "choose a classifier of pictures")
    heat, scores, name = grad_cam(eye.model, eye.batch(album.pixels), layer)
    surest = scores.softmax(-1).max(-1)
    told = [eye.classes[k] for k in surest.indices.tolist()]
    return {
        "title": f"What speaks for the class that {eye.name} names, at {name}",
        "layer": name,
        "pictures": shown(album.pixels),
        "captions": [f"{label} {share:.0%}" for label, share in zip(told, surest.values.tolist())],
        "heat": heat.tolist(),
    }

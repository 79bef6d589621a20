"""How the gradient of the loss on a text reaches the weights, by layer and kind of weight.

    |∂ loss / ∂ W|                the norm of the gradient of each weight (losses.py has the losses)
    |∂ loss / ∂ W| / |W|          relative to the weight: how far a step would turn it

One backward pass. Gradients that fall from layer to layer towards the input vanish; gradients that grow explode.
"""

from math import sqrt
from typing import Any

import torch

from clearformer.handles.handle import Handle
from clearformer.layers.weight_names import place_of
from clearformer.lens.losses import differentiable, loss_of
from clearformer.lens.reading import Reading


def gradient_flow(handle: Handle, reading: Reading) -> dict[str, Any]:
    """Return the gradient norm of every weight, and of every layer."""
    names, weights = zip(*reading.model.named_parameters())
    with differentiable(reading.model):
        loss, of = loss_of(handle, reading)
        gradients = torch.autograd.grad(loss, weights, allow_unused=True)
    rows = []
    for name, weight, gradient in zip(names, weights, gradients):
        if gradient is not None:  # a head that the loss does not use has none
            layer, kind = place_of(name)
            norm, size = float(gradient.float().norm()), float(weight.detach().float().norm())
            relative = norm / size if size else None
            rows.append({"name": name, "layer": layer, "kind": kind, "norm": norm, "relative": relative})
    layers = dict.fromkeys(row["layer"] for row in rows)
    return {
        "title": f"Gradient norms of {handle.name}",
        "loss": float(loss.detach()),
        "loss_of": of,
        "layers": {
            layer: sqrt(sum(row["norm"] ** 2 for row in rows if row["layer"] == layer)) for layer in in_order(layers)
        },
        "weights": rows,
    }


def in_order(layers: dict[str, None]) -> list[str]:
    """Order layers from the input to the output: embeddings first, heads last, the others as they are defined."""
    return sorted(layers, key=lambda layer: 0 if is_input(layer) else 2 if is_head(layer) else 1)


def is_input(layer: str) -> bool:
    last = layer.rpartition(".")[2]
    return last in ("embedding", "segments", "patches", "stem", "positions", "first_norm") or any(
        part in layer for part in ("_embedding", "patches.", "positions.", "subsample")
    )


def is_head(layer: str) -> bool:
    heads = ("unembedding", "word_head", "classifier", "scores", "pooler", "next_sentence_head", "readout")
    return any(part in heads for part in layer.split("."))

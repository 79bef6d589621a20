"""The importance of each attention head, by switching it off.

    importance of head h of layer l  =  log p(y | x) − log p(y | x, z_h = 0)         natural logarithm

z_h is the output of the head before the output matrix: z_h = 0 equals zero columns of that matrix. y is the
translation, the next tokens of a language model, or else the prediction of the unchanged model. A negative value means
that the model is better without the head. Heads that stand in for each other look unimportant one at a time (Michel et
al. 2019).
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from clearformer.data.batch import IGNORE, Batch, TextBatch
from clearformer.errors import ConfigError
from clearformer.layers.attention import MultiHeadAttention
from clearformer.lens.patches import mean_heads, zero_heads
from clearformer.lens.points import points
from clearformer.lens.reading import Reading
from clearformer.lens.session import Patch
from clearformer.wording import count


def heads(readings: Iterable[Reading]) -> dict[str, Any]:
    """Return the importance of every head, for each kind of attention: the mean over the examples."""
    total: dict[str, Tensor] = {}
    name, n, logprob = "", 0, 0.0
    for reading in readings:
        before, losses = importance(reading)
        name, n, logprob = reading.name, n + 1, logprob + before
        total = {layer: total.get(layer, 0) + loss for layer, loss in losses.items()}
    assert n, "there is at least one example"
    texts = f", mean of {count(n, 'example')}" if n > 1 else ""
    return {
        "title": f"Importance of the attention heads of {name}{texts}",
        "label": "loss of log-probability",
        "examples": n,
        "logprob": logprob / n,
        "panels": by_kind({layer: (loss / n).tolist() for layer, loss in total.items()}),
    }


def importance(reading: Reading) -> tuple[float, dict[str, Tensor]]:
    """Return log p of the outputs, and how much it falls without each head, (H,), by the path of its layer."""
    logits, _ = reading.look()
    labels = outputs_of(reading, logits)
    before = log_p(logits, labels)
    losses = {}
    for path, n in layers_of(reading).items():
        without = [reading.look(put={f"{path}.z": zero_heads(head)})[0] for head in range(n)]
        losses[path] = torch.tensor([before - log_p(each, labels) for each in without])
    return before, losses


def layers_of(reading: Reading) -> dict[str, int]:
    """Return the number of heads of each attention layer, by its path."""
    layers = {
        point.name.removesuffix(".z"): point.module.n_heads
        for point in points(reading.model).values()
        if isinstance(point.module, MultiHeadAttention) and point.leaf == "z"
    }
    if not layers:
        raise ConfigError(f"{reading.name} has no attention heads", "choose a Transformer")
    return layers


def outputs_of(reading: Reading, logits: Tensor) -> Tensor:
    """Return the ids of what the model should predict, in the shape of the logits without their last axis.

    These are the tokens of a translation and the next tokens of a language model; otherwise, the predictions of the
    unchanged model.
    """
    if reading.spell is None or logits.dim() < 2:
        raise ConfigError(f"{reading.name} predicts no tokens or classes", "choose a model with probabilities")
    if isinstance(reading.batch, Batch):
        return reading.batch.labels
    if isinstance(reading.batch, TextBatch):
        following = reading.batch.tokens.roll(-1, 1)
        following[:, -1] = IGNORE  # after the last token, nothing is known
        return following
    return logits.argmax(-1)


def log_p(logits: Tensor, labels: Tensor) -> float:
    """Return Σ log p(label), over all labels but IGNORE."""
    chosen = logits.double().log_softmax(-1).gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    return float(chosen[labels != IGNORE].sum())


def by_kind(layers: Mapping[str, list[float]]) -> list[dict[str, Any]]:
    """Arrange values of heads by kind of attention: one panel for encoder.blocks.*.attn, layers × heads."""
    kinds: dict[str, list[list[float]]] = {}
    for path, values in layers.items():
        kinds.setdefault(re.sub(r"\.\d+\.", ".*.", path), []).append(values)
    return [
        {
            "name": kind,
            "rows": [str(layer) for layer in range(len(rows))],
            "columns": [str(head) for head in range(len(rows[0]))],
            "values": rows,
            "down": "layer",
            "across": "head",
        }
        for kind, rows in kinds.items()
    ]


def without(heads: Iterable[tuple[str, int]]) -> dict[str, Patch]:
    """Return the changes that switch off several heads, given as (path of the layer, head), for Lens(put=…)."""
    chosen: dict[str, list[int]] = {}
    for path, head in heads:
        chosen.setdefault(f"{path}.z", []).append(head)
    return {name: zero_heads(*indices) for name, indices in chosen.items()}


def averaged(z: Mapping[str, Tensor], heads: Iterable[tuple[str, int]]) -> dict[str, Patch]:
    """Return the changes that replace several heads by their means over rows and positions of z, for Lens(put=…).

    z has the outputs (B, H, T, N) of each layer by its path. A head that always says the same is left as it is: unlike
    z = 0, its mean only removes what the head knows of the text.
    """
    chosen: dict[str, list[int]] = {}
    for path, head in heads:
        chosen.setdefault(path, []).append(head)
    return {f"{path}.z": mean_heads(z[path], *indices) for path, indices in chosen.items()}

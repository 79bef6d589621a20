"""The attention of each head of a layer.

    A = softmax(Q K' / √d_k)        A_ts: how much position t attends to position s; every row sums to one,
                                    or to less with a learned prefix, which takes the rest and is not shown

    a translator      target position t attends to source position s: cross-attention, or Bahdanau's alignment
    any other model   position t attends to position s of the same text: self-attention

The encoder of a translator has self-attention, too: its layers are called encoder.0 and so on.
"""

from typing import Any, Protocol, runtime_checkable

import torch

from clearformer.errors import ConfigError, DataError
from clearformer.handles.alignment import Alignment
from clearformer.handles.translator import Translator

MOST = 128  # tokens on each side, as many as a figure can show


@runtime_checkable
class SelfAttentive(Protocol):
    """A handle that reads texts: a Translator, a LanguageModel, a TextEncoder."""

    name: str

    def self_attention(self, text: str) -> Alignment:
        """The attention of a text to itself, in every layer."""


@torch.no_grad()
def look(model: SelfAttentive, text: str, target: str | None = None, layer: str | int | None = None) -> dict[str, Any]:
    """The numbers that `clearformer plot attention` draws: of the last layer, unless another is named."""
    side = "encoder." if isinstance(model, Translator) and str(layer).startswith("encoder.") else ""
    if isinstance(model, Translator) and not side:
        action = "writes"
        alignment = model.align(text, model.translate([text])[0] if target is None else target)
    elif target is None:
        action, alignment = "reads", model.self_attention(text)
    else:
        raise ConfigError(f"{model.name} attends to its text alone, and to no translation", "leave --target out")
    if (n := max(len(alignment.source), len(alignment.target))) > MOST:
        raise DataError(f"{n:,} tokens are more than the {MOST} that a figure can show", "give a shorter text")
    layers = [f"{side}{i}" for i in range(len(alignment.pattern))]
    chosen = layers[-1] if layer is None else str(layer)
    if chosen not in layers:
        raise ConfigError(f"{model.name} has no layer `{chosen}`", f"its layers are {layers[0]} to {layers[-1]}")
    return {
        "title": f"Where layer {chosen} of {model.name} looks while it {action}",
        "layer": chosen,
        "source": alignment.source,
        "target": alignment.target,
        "pattern": alignment.pattern[layers.index(chosen)].tolist(),
    }

"""The attention pattern of each head of a layer.

    A = softmax(Q K' / √d_k)        A_ts: how much position t attends to position s. Each row sums to 1; with prefix
                                    tuning it sums to less, since the weights of the prefix are not shown

    translation models   from target position t to source position s: cross-attention, or Bahdanau's alignment
    other models         from position t to position s of the same text: self-attention

The encoder of a translation model also has self-attention, in layers called encoder.0, encoder.1, ….
"""

from typing import Any, Protocol, runtime_checkable

import torch

from clearformer.errors import ConfigError, DataError
from clearformer.handles.alignment import Alignment
from clearformer.handles.translator import Translator
from clearformer.wording import count

MOST = 128  # tokens per axis that fit into a figure


@runtime_checkable
class SelfAttentive(Protocol):
    """A handle of a text model: a Translator, a LanguageModel or a TextEncoder."""

    name: str

    def self_attention(self, text: str) -> Alignment:
        """Return the self-attention of a text in every layer."""


@torch.no_grad()
def look(model: SelfAttentive, text: str, target: str | None = None, layer: str | int | None = None) -> dict[str, Any]:
    """Compute the data for `clearformer plot attention`, by default for the last layer."""
    side = "encoder." if isinstance(model, Translator) and str(layer).startswith("encoder.") else ""
    if isinstance(model, Translator) and not side:
        action = "writing"
        alignment = model.align(text, model.translate([text])[0] if target is None else target)
    elif target is None:
        action, alignment = "reading", model.self_attention(text)
    else:
        raise ConfigError(f"{model.name} is not a translation model: --target has no effect", "leave out --target")
    if (n := max(len(alignment.source), len(alignment.target))) > MOST:
        raise DataError(f"the text has {count(n, 'token')}; a figure can show at most {MOST}", "give a shorter text")
    layers = [f"{side}{i}" for i in range(len(alignment.pattern))]
    chosen = layers[-1] if layer is None else str(layer)
    if chosen not in layers:
        raise ConfigError(f"{model.name} has no layer `{chosen}`", f"its layers are {layers[0]} to {layers[-1]}")
    return {
        "title": f"Attention in layer {chosen} of {model.name} while {action}",
        "layer": chosen,
        "source": alignment.source,
        "target": alignment.target,
        "pattern": alignment.pattern[layers.index(chosen)].tolist(),
    }

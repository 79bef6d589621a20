"""Where each head of a layer looks.

    A = softmax(Q K' / √d_k)        A_ts: how much position t looks at position s; every row sums to one,
                                    or to less with a learned prefix, which takes the rest and is not shown

    a translator      writes t and looks at s of the source: cross-attention, or Bahdanau's alignment
    any other         looks from t to s within the text: self-attention, of a GPT to what came before

A translator's encoder is of the second kind: its layers are called encoder.0 and so on.
"""

from typing import Any

import torch
from torch import nn

from clearformer.data.batch import EncoderBatch
from clearformer.errors import ConfigError, DataError
from clearformer.generation.language import LanguageModel
from clearformer.generation.translate import Alignment, Translator
from clearformer.layers.backends import recording
from clearformer.models.classifier import read
from clearformer.reading.encoder import Encoder

MOST = 128  # tokens a side, that a picture can show


@torch.no_grad()
def look(
    model: Translator | LanguageModel | Encoder, text: str, target: str | None = None, layer: str | int | None = None
) -> dict[str, Any]:
    """The numbers that `clearformer plot attention` draws: of the last layer, unless another is named."""
    side = "encoder." if isinstance(model, Translator) and str(layer).startswith("encoder.") else ""
    if isinstance(model, Translator) and not side:
        action, seen = "writes", model.align(text, model.translate([text])[0] if target is None else target)
    elif target is None:
        action, seen = "reads", self_attention(model, text)
    else:
        raise ConfigError(f"{model.name} looks at its text alone, and at no translation", "leave --target out")
    if (n := max(len(seen.source), len(seen.target))) > MOST:
        raise DataError(f"{n:,} tokens are more than the {MOST} that a picture can show", "give a shorter text")
    layers = [f"{side}{i}" for i in range(len(seen.pattern))]
    chosen = layers[-1] if layer is None else str(layer)
    if chosen not in layers:
        raise ConfigError(f"{model.name} has no layer `{chosen}`", f"its layers are {layers[0]} to {layers[-1]}")
    return {
        "title": f"Where layer {chosen} of {model.name} looks while it {action}",
        "layer": chosen,
        "source": seen.source,
        "target": seen.target,
        "pattern": seen.pattern[layers.index(chosen)].tolist(),
    }


def self_attention(model: Translator | LanguageModel | Encoder, text: str) -> Alignment:
    """A text with itself, as it is read before anything is said."""
    part = model.model
    if isinstance(model, Translator):
        part, tokenizer = getattr(part, "encoder", nn.Module()), model.source_tokenizer
        ids = [*model.encode_sources([text])[0], tokenizer.eos_id]
    elif isinstance(model, LanguageModel):
        tokenizer, ids = model.tokenizer, model.encode(text)
    else:
        tokenizer, ids = model.tokenizer, model.tokenizer.framed([text], max_tokens=model.max_tokens)[0][0]
    tokens = torch.tensor([ids], device=model.device)
    with recording(part) as recorders:
        if not recorders:
            raise ConfigError(
                f"{model.name} has no attention to look at", "choose a Transformer, such as a GPT or BERT"
            )
        if isinstance(model, Encoder):
            read(model.model, EncoderBatch(tokens))
        else:
            model.model.start(tokens, None)
    pieces = tokenizer.pieces(ids)
    looks = [recorder.record[0][..., -len(ids) :] for recorder in recorders]  # without a prefix
    return Alignment(pieces, pieces, torch.cat(looks))  # (L, H, T, T)

"""Where each head of a layer looks.

A = softmax(Q K' / √d_k)        A_ts: how much position t looks at position s, every row sums to one

a translator      writes t and looks at s of the source: cross-attention, or Bahdanau's alignment
any other         looks from t to s within the text: self-attention, of a GPT to what came before
"""

from typing import Any

import torch

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
    """The numbers that `clearformer plot attention` draws: of the last layer, unless another is named, by number."""
    if isinstance(model, Translator):
        seen = model.align(text, model.translate([text])[0] if target is None else target)
    elif target is None:
        seen = self_attention(model, text)
    else:
        raise ConfigError(f"{model.name} is no translator, and looks at its text alone", "leave --target out")
    if (n := max(len(seen.source), len(seen.target))) > MOST:
        raise DataError(f"{n:,} tokens are more than the {MOST} that a picture can show", "give a shorter text")
    last = len(seen.pattern) - 1
    chosen = str(last if layer is None else layer)
    if chosen not in map(str, range(last + 1)):
        raise ConfigError(f"{model.name} has no layer `{chosen}`", f"its layers are counted from 0 to {last}")
    action = "writes" if isinstance(model, Translator) else "reads"
    return {
        "title": f"Where layer {chosen} of {model.name} looks while it {action}",
        "layer": int(chosen),
        "source": seen.source,
        "target": seen.target,
        "pattern": seen.pattern[int(chosen)].tolist(),
    }


def self_attention(model: LanguageModel | Encoder, text: str) -> Alignment:
    """A text with itself. A language model reads it as a prompt."""
    with recording(model.model) as recorders:
        if not recorders:
            raise ConfigError(
                f"{model.name} has no attention to look at", "choose a Transformer, such as a GPT or BERT"
            )
        if isinstance(model, LanguageModel):
            ids = model.encode(text)
            model.model.start(torch.tensor([ids], device=model.device), None)
        else:
            ids = model.tokenizer.framed([text], max_tokens=model.max_tokens)[0][0]
            read(model.model, EncoderBatch(torch.tensor([ids], device=model.device)))
    pieces = model.tokenizer.pieces(ids)
    return Alignment(pieces, pieces, torch.cat([recorder.record[0] for recorder in recorders]))  # (L, H, T, T)

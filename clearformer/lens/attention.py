"""The attention pattern of each head of a layer.

    A = softmax(Q K' / √d_k)        A_ts: how much position t attends to position s. Each row sums to 1; with prefix
                                    tuning it sums to less, since the weights of the prefix are not shown

    translation models   from target position t to source position s: cross-attention, or Bahdanau's alignment
    other models         from position t to position s of the same text: self-attention

These layers are called 0, 1, …; those of the encoder of a translation model, which has self-attention, encoder.0,
encoder.1, …. Every layer also has the name that `clearformer lens attention` gives it: decoder.blocks.0.attn.
"""

from typing import Any

from clearformer.errors import ConfigError, DataError
from clearformer.handles.language_model import LanguageModel
from clearformer.handles.text_encoder import TextEncoder
from clearformer.handles.translator import Translator
from clearformer.lens.attention_maps import one_map
from clearformer.lens.points import points
from clearformer.lens.reading import Reading, read
from clearformer.wording import count, listed

MOST = 128  # tokens per axis that fit into a figure
MOST_NAMES = 6  # of layers, in a hint
Attentive = Translator | LanguageModel | TextEncoder


def look(model: Attentive, text: str, target: str | None = None, layer: str | int | None = None) -> dict[str, Any]:
    """Compute the data for `clearformer plot attention`, by default for the last layer.

    The patterns are those of `clearformer lens attention`, without the columns of a learned prefix.
    """
    side = "encoder." if isinstance(model, Translator) and str(layer).startswith("encoder.") else ""
    is_writing = isinstance(model, Translator) and not side
    if target is not None and not is_writing:
        raise ConfigError(f"{model.name} is not a translation model: --target has no effect", "leave out --target")
    reading = read(model, text, "" if side else target)  # an encoder does not depend on the target
    names = pattern_names(reading, is_writing)
    by_layer = {f"{side}{i}": name for i, name in enumerate(names)}
    chosen = next(reversed(by_layer)) if layer is None else str(layer)
    by_layer |= {name.removesuffix(".pattern"): name for name in all_patterns(reading)}
    name = by_layer.get(chosen.removesuffix(".pattern"), "")
    if not name:
        known = [*by_layer]
        hint = (
            f"its layers are {known[0]} to {known[len(names) - 1]}, or {listed(known[len(names) :], most=MOST_NAMES)}"
        )
        raise ConfigError(f"{model.name} has no layer `{chosen}`", hint)
    rows, columns = reading.axes_of(name)
    if (n := max(len(rows), len(columns))) > MOST:
        raise DataError(f"the text has {count(n, 'token')}; a figure can show at most {MOST}", "give a shorter text")
    _, seen = reading.look(keep=[name])
    whole = one_map(reading, name.removesuffix(".pattern"), seen[name])
    if side:
        rows = columns = [*rows[:-1], *model.source_tokenizer.pieces([model.source_tokenizer.eos_id])]  # type: ignore[union-attr]
    return {
        "title": f"Attention in layer {chosen} of {model.name} while {'writing' if is_writing else 'reading'}",
        "layer": chosen,
        "source": columns,
        "target": rows,
        "pattern": [[row[-len(columns) :] for row in head] for head in whole["pattern"]],
    }


def pattern_names(reading: Reading, is_writing: bool) -> list[str]:
    """Return the patterns of each layer: from target to source, or of the text to itself in the first stack."""
    names = all_patterns(reading)
    if reading.source is not None:
        rows = reading.outputs if is_writing else reading.source
        names = [name for name in names if reading.axes_of(name)[0] is rows]
    if not names and is_writing:
        message = f"{reading.name} has no attention, so it cannot align texts"
        raise ConfigError(message, "choose a Transformer or a `bahdanau` model")
    if not names:
        message = f"{reading.name} has no attention layers to show"
        raise ConfigError(message, "choose a Transformer, such as a GPT or BERT")
    return names


def all_patterns(reading: Reading) -> list[str]:
    return [name for name in points(reading.model) if name.rpartition(".")[2] == "pattern"]

"""A model at work on one input: what a view looks at.

    at_work = read(translator, "Where is the station?")
    logits, look = at_work.look(keep=["decoder.blocks.*.cross.pattern"])
    at_work.axes_of("decoder.blocks.1.cross.pattern")        (names of the rows, names of the columns)

A translator reads the source and its translation (teacher forcing), so that one forward pass has every position.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import singledispatch
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clearformer.data.batch import EncoderBatch, Tensors, TextBatch
from clearformer.data.recordings import pad_sounds
from clearformer.data.tags import word_rows
from clearformer.errors import ConfigError, DataError
from clearformer.handles.classifier import divide
from clearformer.handles.handle import Handle
from clearformer.handles.image_model import ImageModel
from clearformer.handles.language_model import LanguageModel
from clearformer.handles.masked_model import MaskedModel
from clearformer.handles.sentence_scorer import SentenceScorer
from clearformer.handles.tagger import Tagger, words_of
from clearformer.handles.text_encoder import TextEncoder
from clearformer.handles.text_model import TextModel
from clearformer.handles.transcriber import Transcriber
from clearformer.handles.translator import Translator
from clearformer.lens.session import Lens, Patch
from clearformer.models.classifier import read as read_base
from clearformer.text.normalize import clean

Spell = Callable[[list[int]], list[str]]
Input = str | np.ndarray
"""A text, or the path or contents of a file: pixels uint8 (C, size, size), or int16 samples (N,)."""


@dataclass(frozen=True)
class Reading:
    """A forward pass of a model, and the names of its positions.

    `source` are the positions of an encoder, `target` the positions of a decoder or of a model with a single stack.
    `outputs` names what each row of the logits predicts: the next token of a decoder, else the token itself.
    """

    name: str
    model: nn.Module
    batch: Tensors
    compute: Callable[[Any], Tensor]
    target: list[str]
    outputs: list[str]
    source: list[str] | None = None
    spell: Spell | None = None
    """The names of ids of the vocabulary or of classes, if the model has logits."""
    ids: list[int | None] | None = None
    """The ids of `outputs` in the vocabulary, if they are tokens; None where the text ends."""
    words: list[tuple[str, int]] | None = None
    """The words of a tagger, each with the row of the logits that classifies it."""

    def look(self, keep: Iterable[str] = (), put: Mapping[str, Patch] | None = None) -> tuple[Tensor, Lens]:
        """Run the model once. Returns its logits (without a head, its last hidden states) and the kept activations."""
        with torch.no_grad(), Lens(self.model, keep, put) as look:
            logits = self.compute(self.batch)
        return logits, look

    def axes_of(self, pattern: str) -> tuple[list[str], list[str]]:
        """Return the names of the rows and columns of an attention pattern, without the columns of a learned prefix."""
        path = pattern.split(".")
        if self.source is None:
            return self.target, self.target
        if path[0] == "encoder":
            return self.source, self.source
        is_cross = path[-2] == "cross" or "blocks" not in path  # the only attention of recurrent decoders
        return (self.outputs, self.source) if is_cross else (self.target, self.target)


@singledispatch
def read(handle: Handle, text: Input, target: str | None = None) -> Reading:
    """Prepare the forward pass of a model on a text, an image file or a recording. Nothing is computed yet.

    `target` is the translation that a translator reads, by default its own.
    """
    raise ConfigError(f"{handle.name} is {handle.kind}, which a lens cannot read yet", "choose another model")


@read.register
def read_pair(handle: Translator, text: str, target: str | None = None) -> Reading:
    if target is None:  # its text may be divided into more tokens than were written, so that no cut is reported
        tokens = handle.target_tokenizer.encode([handle.translate(text)])[0][: handle.model.config.max_length - 1]
    else:
        tokens = handle.encode(handle.target_tokenizer, [target])[0]
    pair = handle.encode_sources([text])[0], tokens
    source, written = handle.source_tokenizer.pieces(pair[0]), handle.target_tokenizer.pieces(pair[1])
    first = handle.target_tokenizer.pieces([handle.start_id])
    return Reading(
        handle.name,
        handle.model,
        handle.batch([pair]),
        handle.model,
        target=[*first, *written],
        outputs=[*written, "<eos>"],
        source=[*source, "<eos>"],
        spell=handle.target_tokenizer.pieces,
        ids=[*pair[1], handle.target_tokenizer.eos_id],
    )


@read.register
def read_prompt(handle: LanguageModel, text: str, target: str | None = None) -> Reading:
    refuse_target(handle, target)
    ids = handle.encode(text)
    tokens = torch.tensor([ids], device=handle.device)
    pieces = handle.tokenizer.pieces(ids)
    batch = TextBatch(tokens, tokens, n_tokens=len(ids))
    return Reading(
        handle.name,
        handle.model,
        batch,
        handle.model,
        pieces,
        [*pieces[1:], "?"],
        spell=handle.tokenizer.pieces,
        ids=[*ids[1:], None],
    )


@read.register(MaskedModel)
@read.register(TextModel)
@read.register(SentenceScorer)
def read_text(handle: Any, text: str, target: str | None = None) -> Reading:
    """Read a text. A tab separates the two texts of a pair, for a classifier of pairs."""
    refuse_target(handle, target)
    most = getattr(handle, "max_tokens", handle.model.config.max_length)
    is_pair = getattr(handle, "is_pair", False)
    halves = divide([text], "\t" in text if is_pair is None else is_pair)
    texts, pairs = (half and [clean(part) for part in half] for half in halves)
    [ids], [segments] = handle.tokenizer.encode_with_specials(texts, pairs, max_tokens=most)
    return read_ids(handle, ids, segments)


@read.register
def read_words(handle: Tagger, text: str, target: str | None = None) -> Reading:
    """Read the words of a text, as the tagger splits them; of a text that does not fit, its first words."""
    refuse_target(handle, target)
    [words] = words_of([text])
    if not words:
        raise DataError("the text is empty", "give a text with at least one word")
    rows, places = word_rows([words], handle.tokenizer, handle.max_tokens)
    n = int(rows.lengths[0])
    known = [(word, place) for word, place in zip(words, places.tolist()) if place < n]
    return replace(read_ids(handle, rows.flat[:n].tolist(), [0] * n), words=known)


def read_ids(handle: Any, ids: list[int], segments: list[int]) -> Reading:
    if not ids:
        raise DataError("the text is empty", "give a text with at least one word")
    pieces, tokens = handle.tokenizer.pieces(ids), torch.tensor([ids], device=handle.device)
    batch = EncoderBatch(tokens, segments=torch.tensor([segments], device=handle.device))
    compute = (lambda batch: read_base(handle.model, batch)) if isinstance(handle, TextEncoder) else handle.model
    spell: Spell | None = handle.tokenizer.pieces if isinstance(handle, MaskedModel) else None
    if classes := getattr(handle, "classes", None):
        spell = lambda ids: [classes[i] for i in ids]  # noqa: E731
    known: list[int | None] | None = [*ids] if isinstance(handle, MaskedModel) else None
    return Reading(handle.name, handle.model, batch, compute, pieces, pieces, spell=spell, ids=known)


@read.register
def read_image(handle: ImageModel, text: Input, target: str | None = None) -> Reading:
    refuse_target(handle, target)
    config = handle.model.config
    n = (config.size // config.patch) ** 2 if hasattr(config, "patch") else 0
    patches = [f"patch {i}" for i in range(n)]
    names = ["<class>", *patches] if getattr(config, "pooling", "") == "class" else patches
    classes = handle.classes
    spell: Spell | None = (lambda ids: [classes[i] for i in ids]) if classes else None
    return Reading(
        handle.name, handle.model, handle.batch(handle.pixels([text])), handle.model, names, names, spell=spell
    )


@read.register
def read_recording(handle: Transcriber, text: Input, target: str | None = None) -> Reading:
    refuse_target(handle, target)
    batch = handle.frontend(pad_sounds([handle.open(text)]).to(handle.device))
    seconds = handle.sound.hop * prod(handle.model.config.strides)  # per output frame
    frames = [f"{seconds * i:.2f} s" for i in range(int(handle.model.shortened(batch.lengths)[0]))]
    blank = handle.tokenizer.vocab_size
    return Reading(
        handle.name,
        handle.model,
        batch,
        handle.model,
        frames,
        frames,
        spell=lambda ids: ["<blank>" if i == blank else handle.tokenizer.pieces([i])[0] for i in ids],
    )


def refuse_target(handle: Handle, target: str | None) -> None:
    if target is not None:
        raise ConfigError(f"{handle.name} is not a translation model: --target has no effect", "leave out --target")

"""A text encoder: the embedding of a text is the mean of the outputs at its tokens (Reimers & Gurevych 2019).

e = Σ_t m_t h_t / Σ_t m_t, m_t = 0 at padding; e / |e| for comparisons by cosine
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.data.batch import EncoderBatch
from clearformer.handles.batching import read_texts
from clearformer.handles.inputs import one_or_many
from clearformer.handles.text_model import TextModel
from clearformer.handles.word_vectors import WordVectors
from clearformer.models.classifier import pool_mean, read
from clearformer.text import Tokenizer


class TextEncoder(TextModel, WordVectors):
    """A text encoder, as returned by `load_encoder`. `unit` scales every embedding to length 1."""

    kind = "a text encoder"
    verbs = ("embed", "neighbours", "plot")
    main = "embed"

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Tokenizer,
        name: str = "model",
        max_tokens: int | None = None,
        unit: bool = False,
    ) -> None:
        super().__init__(model, tokenizer, name, max_tokens)
        self.unit = unit

    @one_or_many
    def embed(self, texts: Sequence[str]) -> Tensor:
        """Return embeddings on the CPU, in float32 or wider: (N, D), or (D,) for a single text.

        Texts longer than the max length are cut.
        """
        if not texts:
            return torch.empty(0, int(self.model.config.d_model))
        vectors = read_texts(self.pooled, self.tokenizer, texts, None, self.max_tokens, self.device)
        return F.normalize(vectors, dim=-1) if self.unit else vectors

    def pooled(self, batch: EncoderBatch) -> Tensor:
        return pool_mean(read(self.model, batch), batch.mask)


class TextEmbedder(WordVectors):
    """A handle that also embeds texts, as `clearformer.embed` does: without its head."""

    model: Any
    tokenizer: Tokenizer
    name: str

    @cached_property
    def encoder(self) -> TextEncoder:
        """The network as a text encoder; for a classifier, the network below the classification head."""
        return TextEncoder(getattr(self.model, "base", self.model), self.tokenizer, self.name)

    @one_or_many
    def embed(self, texts: Sequence[str]) -> Tensor:
        """Return embeddings on the CPU: (N, D), or (D,) for a single text."""
        return self.encoder.embed(texts)

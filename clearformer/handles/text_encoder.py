"""Text in, a vector out: the mean of what a network makes of the tokens (Reimers & Gurevych 2019).

e = Σ_t m_t h_t / Σ_t m_t, over real tokens; e / |e| where vectors are compared by their angle
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.data.batch import EncoderBatch
from clearformer.handles.batching import read_texts
from clearformer.handles.text_model import Reader
from clearformer.models.classifier import pool_mean, read
from clearformer.text import Tokenizer


class TextEncoder(Reader):
    """`load_encoder` makes one of a run folder or a published model. `unit` makes every vector of length 1."""

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

    def embed(self, texts: Sequence[str]) -> Tensor:
        """(N, D) on the CPU, in float32 at least. What is longer than the model reads is cut."""
        if not texts:
            return torch.empty(0, int(self.model.config.d_model))
        vectors = read_texts(self.pooled, self.tokenizer, texts, None, self.max_tokens, self.device)
        return F.normalize(vectors, dim=-1) if self.unit else vectors

    def pooled(self, batch: EncoderBatch) -> Tensor:
        return pool_mean(read(self.model, batch), batch.mask)

"""A custom model, registered from outside the package. It trains and translates like the models in the package:

    cd examples
    clearformer --plugin own_model train --pairs pairs.tsv --model two-bags --out runs/bags
    clearformer --plugin own_model translate --model runs/bags "the dog sees a tree."

The model is two bags of words: it ignores the order of the source and of the target words so far, except for the last
one.

    s   = mean over the source of E[x]                     the bag of source words
    c_t = mean of E[y_1] … E[y_t]                          the bag of target words so far
    h_t = W₂ gelu(W₁ [s; c_t; E[y_t]])                     then logits = U h_t

This is the complete interface of a translation model: a configuration, `hidden` and `head` for training, `start` and
`step` for decoding one token at a time, and a state that beam search can reorder.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from clearformer import register
from clearformer.config import Config
from clearformer.data.batch import Batch


class TwoBagsConfig(Config):
    """[model] of kind "two-bags"."""

    kind: Literal["two-bags"] = "two-bags"
    preset: str | None = None
    source_vocab: int = Field(1000, gt=0, description="number of vocabulary entries; set from the tokenizer")
    target_vocab: int = Field(1000, gt=0, description="number of vocabulary entries; set from the tokenizer")
    max_length: int = Field(512, gt=0, description="maximum number of tokens per side; longer texts are truncated")
    d_model: int = Field(128, gt=0)
    dropout: float = Field(0.1, ge=0, lt=1)


@dataclass
class BagState:
    """Decoding state of B sentences with W hypotheses each: the source bags, and the sums over each hypothesis."""

    source: Tensor  # (B, 1, D)
    total: Tensor  # (B, W, D)
    n: int = 0

    def reorder(self, parents: Tensor) -> None:
        """Hypothesis w of sentence b continues hypothesis parents[b, w]; parents (B, W)."""
        self.total = self.total.gather(1, parents[:, :, None].expand(-1, -1, self.total.size(2)))

    def keep(self, rows: Tensor) -> None:
        """Keep only these sentences; rows (B',) indices."""
        self.source, self.total = self.source[rows], self.total[rows]


class TwoBags(nn.Module):
    """source (B, S), target (B, T) -> logits (B, T, V)."""

    Config = TwoBagsConfig

    def __init__(self, config: TwoBagsConfig) -> None:
        super().__init__()
        self.config = config
        D = config.d_model
        self.source_embedding = nn.Embedding(config.source_vocab, D)
        self.target_embedding = nn.Embedding(config.target_vocab, D)
        self.mlp = nn.Sequential(nn.Linear(3 * D, 4 * D), nn.GELU(), nn.Dropout(config.dropout), nn.Linear(4 * D, D))
        self.unembedding = nn.Linear(D, config.target_vocab, bias=False)

    def forward(self, batch: Batch) -> Tensor:
        return self.head(self.hidden(batch))

    def hidden(self, batch: Batch) -> Tensor:
        target = self.target_embedding(batch.target)  # (B, T, D)
        counts = torch.arange(1, target.size(1) + 1, device=target.device)[:, None]
        return self.mix(self.bag(batch.source, batch.source_mask), target.cumsum(1) / counts, target)

    def head(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.unembedding(hidden)
        return logits

    def start(self, source: Tensor, source_mask: Tensor | None) -> BagState:
        bag = self.bag(source, source_mask)
        return BagState(bag, torch.zeros_like(bag))

    def step(self, tokens: Tensor, state: BagState) -> tuple[Tensor, BagState]:
        """One token for each of W hypotheses of B sentences: tokens (B, W) -> logits (B, W, V)."""
        last = self.target_embedding(tokens)  # (B, W, D)
        state.total, state.n = state.total + last, state.n + 1
        return self.head(self.mix(state.source, state.total / state.n, last)), state

    def bag(self, source: Tensor, source_mask: Tensor | None) -> Tensor:
        """source (B, S), source_mask (B, S) True at tokens, None without padding -> (B, 1, D)."""
        mask = torch.ones_like(source, dtype=torch.bool) if source_mask is None else source_mask
        total = (self.source_embedding(source) * mask[:, :, None]).sum(1, keepdim=True)
        return total / mask.sum(1)[:, None, None]

    def mix(self, source: Tensor, written: Tensor, last: Tensor) -> Tensor:
        """source (B, 1, D), written and last (B, T, D) -> (B, T, D)."""
        hidden: Tensor = self.mlp(torch.cat([source.expand_as(written), written, last], dim=2))
        return hidden


register("model", "two-bags", TwoBags)

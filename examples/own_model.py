"""A model of your own, registered from outside the package. It trains and translates like those that ship:

    cd examples
    clearformer --plugin own_model train --pairs pairs.tsv --model two-bags --out runs/bags
    clearformer --plugin own_model translate --model runs/bags "the dog sees a tree."

The model is two bags of words: it forgets the order of the source, and remembers of its own words which it has said
and which came last.

    s   = mean over the source of E[x]                     the bag to translate
    c_t = mean of E[y_1] … E[y_t]                          the bag of what was said
    h_t = W₂ gelu(W₁ [s; c_t; E[y_t]])                     then logits = U h_t

What the toolkit asks of a translation model is all here: a configuration, `hidden` and `head` to train it, `start` and
`step` to decode with it one word at a time, and a state that a beam search can rearrange.
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
    source_vocab: int = Field(1000, gt=0, description="entries; taken from the tokenizer when training")
    target_vocab: int = Field(1000, gt=0, description="entries; taken from the tokenizer when training")
    max_length: int = Field(512, gt=0, description="tokens a side; longer texts are cut")
    d_model: int = Field(128, gt=0)
    dropout: float = Field(0.1, ge=0, lt=1)


@dataclass
class Said:
    """The decoding of B sentences with W branches each: source bags, and the sums of what each branch has said."""

    source: Tensor  # (B, 1, D)
    total: Tensor  # (B, W, D)
    n: int = 0

    def reorder(self, parents: Tensor) -> None:
        """Branch w of sentence b goes on from branch parents[b, w]; parents (B, W)."""
        self.total = self.total.gather(1, parents[:, :, None].expand(-1, -1, self.total.size(2)))

    def keep(self, rows: Tensor) -> None:
        """Only these sentences stay; rows (B',) indices."""
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
        said = self.target_embedding(batch.target)  # (B, T, D)
        counts = torch.arange(1, said.size(1) + 1, device=said.device)[:, None]
        return self.mix(self.bag(batch.source, batch.source_mask), said.cumsum(1) / counts, said)

    def head(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.unembedding(hidden)
        return logits

    def start(self, source: Tensor, source_mask: Tensor | None) -> Said:
        bag = self.bag(source, source_mask)
        return Said(bag, torch.zeros_like(bag))

    def step(self, tokens: Tensor, state: Said) -> tuple[Tensor, Said]:
        """One word on each of W branches of B sentences: tokens (B, W) -> logits (B, W, V)."""
        last = self.target_embedding(tokens)  # (B, W, D)
        state.total, state.n = state.total + last, state.n + 1
        return self.head(self.mix(state.source, state.total / state.n, last)), state

    def bag(self, source: Tensor, source_mask: Tensor | None) -> Tensor:
        """source (B, S), source_mask (B, S) True at words, None if there is no padding -> (B, 1, D)."""
        mask = torch.ones_like(source, dtype=torch.bool) if source_mask is None else source_mask
        total = (self.source_embedding(source) * mask[:, :, None]).sum(1, keepdim=True)
        return total / mask.sum(1)[:, None, None]

    def mix(self, source: Tensor, said: Tensor, last: Tensor) -> Tensor:
        """source (B, 1, D), said and last (B, T, D) -> (B, T, D)."""
        hidden: Tensor = self.mlp(torch.cat([source.expand_as(said), said, last], dim=2))
        return hidden


register("model", "two-bags", TwoBags)

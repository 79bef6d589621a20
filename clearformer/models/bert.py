"""BERT, the Transformer's encoder by itself, which reads a text whole (Devlin et al. 2019).

    hidden(batch)              norm(words + segments + positions), then L blocks that look both ways
    head(hidden)               norm(gelu(W h)) E' + b: which word stands, or should stand, at each position
    pooled(hidden)             tanh(W h_1): the first position, CLS, speaks for the whole text
    next_sentence(pooled)      does the second text follow the first?

RoBERTa (Liu et al. 2019) is the same network with one segment, no next sentence, and two rows that no position uses
at the head of its table of positions.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from clearformer.data.batch import EncoderBatch
from clearformer.errors import ConfigError
from clearformer.layers.attention import Core
from clearformer.layers.backends import FusedCore
from clearformer.layers.embeddings import TokenEmbedding, Unembedding
from clearformer.layers.feedforward import ACTIVATIONS, GATED
from clearformer.layers.init import gaussian
from clearformer.layers.masks import Padding
from clearformer.layers.positions import PositionConfig
from clearformer.models.stack import StackConfig, build_norm, build_stack


class BertConfig(StackConfig):
    """[model] of kind "bert". The defaults are BERT-base with all its heads: 110 million parameters."""

    kind: Literal["bert"] = "bert"
    preset: str | None = Field(None, description="a name that `clearformer inspect` takes, such as bert-base")
    vocab: int = Field(30522, gt=0, description="entries; taken from the tokenizer when training")
    n_layers: int = Field(12, gt=0)
    n_segments: int = Field(2, ge=0, description="kinds of text that are told apart: 2 for pairs; RoBERTa has 1")
    d_model: int = Field(768, gt=0)
    d_ff: int = Field(3072, gt=0)
    n_heads: int = Field(12, gt=0)
    activation: Literal["relu", "gelu", "gelu-tanh", "silu", "swiglu", "geglu", "geglu-tanh"] = "gelu"
    norm_eps: float | None = Field(1e-12, gt=0, description="ε of every norm")
    residual: Literal["pre", "post"] = "post"
    first_norm: bool = Field(True, description="a norm on the embeddings, once their positions are added")
    positions: PositionConfig = PositionConfig(kind="learned")
    attention_dropout: float = Field(0.1, ge=0, lt=1)
    word_head: bool = Field(True, description="can say which word is missing; a sentence encoder cannot")
    pooler: bool = Field(True, description="can say a text in one vector, which next_sentence_head reads")
    next_sentence_head: bool = Field(True, description="can say whether the second text follows the first")

    def model_post_init(self, context: object) -> None:
        super().model_post_init(context)
        if self.next_sentence_head and not self.pooler:
            raise ValueError("next_sentence_head reads the pooler; set pooler = true, or next_sentence_head = false")


class Bert(nn.Module):
    """tokens (B, T) -> logits (B, T, V), or hidden (B, T, D) where there is no word head."""

    Config = BertConfig
    task = "masked-lm"
    batch_class = EncoderBatch
    heads = ("word_head", "pooler", "next_sentence_head")  # fields of the same names say which there are

    def __init__(self, config: BertConfig, core: Core | None = None) -> None:
        super().__init__()
        self.config, D = config, config.d_model
        self.embedding = TokenEmbedding(config.vocab, D, scale=False)
        self.segments = nn.Embedding(config.n_segments, D) if config.n_segments else None
        self.encoder = build_stack(config, config.n_layers, core or FusedCore(), is_causal=False)
        self.pooler = nn.Linear(D, D) if config.pooler else None
        self.word_head = WordHead(config, self.embedding) if config.word_head else None
        self.next_sentence_head = nn.Linear(D, 2) if config.next_sentence_head else None
        self.apply(gaussian)

    def forward(self, batch: EncoderBatch) -> Tensor:
        hidden = self.hidden(batch)
        return hidden if self.word_head is None else self.head(hidden)

    def hidden(self, batch: EncoderBatch) -> Tensor:
        """The last layer (B, T, D). What stands at padded positions means nothing."""
        where = torch.arange(batch.tokens.size(1), device=batch.tokens.device)
        return self.encoder(self.embed(batch), where, None if batch.mask is None else Padding(batch.mask))

    def embed(self, batch: EncoderBatch) -> Tensor:
        """Words and segments (B, T, D); positions come in the encoder. A model with one segment is told of no other."""
        words = self.embedding(batch.tokens)
        if self.segments is None:
            return words
        is_told = batch.segments is not None and self.config.n_segments > 1
        return words + self.segments(batch.segments if is_told else torch.zeros_like(batch.tokens))

    def head(self, hidden: Tensor) -> Tensor:
        """hidden (…, D) -> scores for the word of each position (…, V)."""
        return there(self.word_head, "word_head")(hidden)

    def pooled(self, hidden: Tensor) -> Tensor:
        """hidden (B, T, D) -> (B, D): each text in one vector."""
        return torch.tanh(there(self.pooler, "pooler")(hidden[:, 0]))

    def next_sentence(self, pooled: Tensor) -> Tensor:
        """pooled (B, D) -> (B, 2): scores for "it follows" and for "it comes from elsewhere", in this order."""
        return there(self.next_sentence_head, "next_sentence_head")(pooled)


class WordHead(nn.Module):
    """hidden (…, D) -> logits (…, V): norm(act(W h)) E' + b, where E is the embedding's own table."""

    def __init__(self, config: BertConfig, embedding: TokenEmbedding) -> None:
        super().__init__()
        self.activation = (ACTIVATIONS | GATED)[config.activation]
        self.dense, self.norm = nn.Linear(config.d_model, config.d_model), build_norm(config)
        self.unembedding = Unembedding(config.d_model, config.vocab, bias=True, tied=embedding)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.unembedding(self.norm(self.activation(self.dense(hidden))))


def there(head: nn.Module | None, key: str) -> nn.Module:
    """A head that was built, or a sentence that says it was not."""
    if head is None:
        raise ConfigError(f"this model has no {key}", f"build it with model.{key} = true, and train it")
    return head

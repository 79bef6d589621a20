"""BERT, the encoder-only Transformer, which reads a text in both directions (Devlin et al. 2019).

    hidden(batch)              norm(words + segments + positions), then L blocks with attention in both directions
    head(hidden)               norm(gelu(W h)) E' + b: which token is, or should be, at each position
    pooled(hidden)             tanh(W h_1): the first position, CLS, represents the whole text
    next_sentence(pooled)      whether the second text follows the first

RoBERTa (Liu et al. 2019) is the same network with one segment, no next-sentence head, and two unused rows at the start
of its position table.
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
from clearformer.models.stack import ResidualName, StackConfig, build_norm, build_stack


class BertConfig(StackConfig):
    """The [model] table of a recipe, for kind = "bert".

    The defaults are BERT-base with all its heads: 110 million parameters.
    """

    kind: Literal["bert"] = "bert"
    preset: str | None = Field(None, description="name of a preset, such as bert-base")
    vocab: int = Field(30522, gt=0, description="vocabulary size, set from the tokenizer in training")
    n_layers: int = Field(12, gt=0, description="number of blocks")
    n_segments: int = Field(2, ge=0, description="number of segment embeddings: 2 for pairs of texts; 1 in RoBERTa")
    d_model: int = Field(768, gt=0, description="width of the model")
    d_ff: int = Field(3072, gt=0, description="width of the feed-forward networks")
    n_heads: int = Field(12, gt=0, description="attention heads per layer")
    activation: Literal["relu", "gelu", "gelu-tanh", "silu", "swiglu", "geglu", "geglu-tanh"] = Field(
        "gelu", description="feed-forward activation"
    )
    norm_eps: float | None = Field(1e-12, gt=0, description="ε of every norm")
    residual: ResidualName = Field(
        "post", description="norm before each sublayer (pre) or after each residual sum (post); none: no residual sums"
    )
    first_norm: bool = Field(True, description="whether to normalise the sum of embeddings and positions")
    positions: PositionConfig = PositionConfig(kind="learned")
    attention_dropout: float = Field(0.1, ge=0, lt=1, description="dropout probability on attention patterns")
    word_head: bool = Field(True, description="whether there is a head that predicts tokens")
    pooler: bool = Field(True, description="whether there is a pooling layer, which next_sentence_head needs")
    next_sentence_head: bool = Field(True, description="whether there is a head for next-sentence prediction")

    def model_post_init(self, context: object) -> None:
        super().model_post_init(context)
        if self.next_sentence_head and not self.pooler:
            raise ValueError("next_sentence_head needs the pooler; set pooler = true or next_sentence_head = false")


class Bert(nn.Module):
    """A BERT model: tokens (B, T) -> logits (B, T, V), or hidden states (B, T, D) if it has no word head."""

    Config = BertConfig
    task = "masked-lm"
    batch_class = EncoderBatch
    heads = ("word_head", "pooler", "next_sentence_head")  # optional; fields of the same names enable them

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
        """Return the output of the encoder, (B, T, D). Values at padding have no meaning."""
        where = torch.arange(batch.tokens.size(1), device=batch.tokens.device)
        mask = None if batch.mask is None else Padding(batch.mask)
        return self.encoder(self.embed(batch), where, mask, real=batch.mask)

    def embed(self, batch: EncoderBatch) -> Tensor:
        """Return the sum of word and segment embeddings, (B, T, D); the encoder adds positions.

        With one segment, `batch.segments` is ignored.
        """
        words = self.embedding(batch.tokens)
        if self.segments is None:
            return words
        has_segments = batch.segments is not None and self.config.n_segments > 1
        return words + self.segments(batch.segments if has_segments else torch.zeros_like(batch.tokens))

    def head(self, hidden: Tensor) -> Tensor:
        """Return the logits (…, V) of the token at each position, from hidden states (…, D)."""
        return require_head(self.word_head, "word_head")(hidden)

    def pooled(self, hidden: Tensor) -> Tensor:
        """Return one vector for each text, (B, D), from hidden states (B, T, D)."""
        return torch.tanh(require_head(self.pooler, "pooler")(hidden[:, 0]))

    def next_sentence(self, pooled: Tensor) -> Tensor:
        """Return the logits (B, 2) of "follows" and "does not follow", in this order, from pooled vectors (B, D)."""
        return require_head(self.next_sentence_head, "next_sentence_head")(pooled)


class WordHead(nn.Module):
    """The head that predicts tokens: norm(act(W h)) E' + b, with E tied to the embedding; (…, D) -> logits (…, V)."""

    def __init__(self, config: BertConfig, embedding: TokenEmbedding) -> None:
        super().__init__()
        self.activation = (ACTIVATIONS | GATED)[config.activation]
        self.dense, self.norm = nn.Linear(config.d_model, config.d_model), build_norm(config)
        self.unembedding = Unembedding(config.d_model, config.vocab, bias=True, tied=embedding)

    def forward(self, hidden: Tensor) -> Tensor:
        return self.unembedding(self.norm(self.activation(self.dense(hidden))))


def require_head(head: nn.Module | None, key: str) -> nn.Module:
    """Return the head, or raise a ConfigError if the model was built without it."""
    if head is None:
        raise ConfigError(f"this model has no {key}", f"train a model with --set model.{key}=true")
    return head

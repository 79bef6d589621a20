"""T5, the encoder–decoder Transformer that treats every task as text to text (Raffel et al. 2020).

What makes a T5 of a Transformer is its configuration:

    positions     b_h[bucket(t − s)] on the scores, learnt once for the encoder and once for the decoder
    norm          RMSNorm before each sublayer, and no bias in any layer
    scores        q k', not divided by √K: that factor is in how Wq begins
    head          E' (h / √D), the table that both sides read; T5 1.1 has a table of its own and does not divide
    feed-forward  ReLU; in T5 1.1 GELU with a gate

A T5 begins what it writes with the padding token. `max_length` bounds only that: distances have no end.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import nn

from clearformer.layers.attention import Core, MultiHeadAttention
from clearformer.layers.embeddings import TokenEmbedding, Unembedding
from clearformer.layers.positions import PositionConfig
from clearformer.models.transformer import Transformer, TransformerConfig


class T5Config(TransformerConfig):
    """[model] of kind "t5". The defaults are T5-small: 60.5 million parameters."""

    kind: Literal["t5"] = "t5"  # type: ignore[assignment]
    source_vocab: int = Field(32128, gt=0, description="entries; taken from the tokenizer when training")
    target_vocab: int = Field(32128, gt=0, description="entries; taken from the tokenizer when training")
    d_head: int | None = Field(64, gt=0, description="width of a head; n_heads · d_head need not be d_model")
    norm: Literal["layer", "rms"] = "rms"
    positions: PositionConfig = PositionConfig(kind="t5")
    attention_scale: float | None = Field(1.0, gt=0, description="of the scores")
    bias: bool = False
    attention_dropout: float = Field(0.1, ge=0, lt=1)
    activation_dropout: float = Field(0.1, ge=0, lt=1)
    scale_embedding: bool = Field(False, description="multiply embeddings by √d_model")
    scale_head: bool = Field(True, description="divide what the head reads by √d_model; not in T5 1.1")


class T5(Transformer):
    """source (B, S), target (B, T) -> logits (B, T, V): at each position, scores for the next target token."""

    Config = T5Config
    begins_with = "pad"

    def __init__(self, config: T5Config, core: Core | None = None) -> None:
        super().__init__(config, core)
        self.apply(unit)


def unit(module: nn.Module) -> None:
    """For `module.apply`, how T5's weights begin: rows of tables N(0, 1), matrices N(0, 1/fan_in), which keeps that.

    Wq is quieter, by what the scores would otherwise be divided by: 1/√K.
    """
    if isinstance(module, TokenEmbedding):
        nn.init.normal_(module.weight)
    elif isinstance(module, nn.Linear) and not isinstance(module, Unembedding):
        nn.init.normal_(module.weight, std=module.in_features**-0.5)
    elif isinstance(module, MultiHeadAttention):  # after the layers inside it
        with torch.no_grad():
            module.qkv.weight[: module.rows[0]] *= module.d_head**-0.5 / module.scale

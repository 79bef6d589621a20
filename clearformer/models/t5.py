"""T5, the encoder–decoder Transformer that treats every task as text to text (Raffel et al. 2020).

It is a Transformer with another configuration:

    positions     b_h[bucket(t − s)] on the attention scores, learnt once for the encoder and once for the decoder
    norm          RMSNorm before each sublayer, and no bias in any layer
    scores        q k', not divided by √K: the initialisation of Wq contains that factor
    head          E' (h / √D), tied to the source and target embeddings; T5 1.1 has a separate matrix and no 1/√D
    feed-forward  ReLU; in T5 1.1 GELU with a gate

The decoder starts with the padding token. `max_length` limits only its output: relative positions have no limit.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import nn

from clearformer.layers.attention import Core, MultiHeadAttention
from clearformer.layers.embeddings import TokenEmbedding, Unembedding
from clearformer.layers.positions import PositionConfig
from clearformer.models.stack import NormName
from clearformer.models.transformer import Transformer, TransformerConfig


class T5Config(TransformerConfig):
    """The [model] table of a recipe, for kind = "t5". The defaults are T5-small: 60.5 million parameters."""

    kind: Literal["t5"] = "t5"  # type: ignore[assignment]
    source_vocab: int = Field(32128, gt=0, description="source vocabulary size, set from the tokenizer in training")
    target_vocab: int = Field(32128, gt=0, description="target vocabulary size, set from the tokenizer in training")
    d_head: int | None = Field(64, gt=0, description="width of a head; n_heads · d_head need not equal d_model")
    norm: NormName = "rms"
    positions: PositionConfig = PositionConfig(kind="t5")
    attention_scale: float | None = Field(1.0, gt=0, description="factor on the attention scores")
    bias: bool = False
    attention_dropout: float = Field(0.1, ge=0, lt=1, description="dropout probability on attention patterns")
    activation_dropout: float = Field(0.1, ge=0, lt=1, description="dropout probability inside feed-forward networks")
    scale_embedding: bool = Field(False, description="whether to multiply embeddings by √d_model")
    begins_with: Literal["bos", "eos", "pad"] = Field("pad", description="special token that the decoder starts with")
    scale_head: bool = Field(True, description="whether to divide the head's input by √d_model; false in T5 1.1")


class T5(Transformer):
    """A T5 model: source (B, S), target (B, T) -> logits (B, T, V) of the next target token at each position."""

    Config = T5Config
    is_recordable = False  # not measured yet

    def __init__(self, config: T5Config, core: Core | None = None) -> None:
        super().__init__(config, core)
        self.apply(unit)


def unit(module: nn.Module) -> None:
    """Initialise as T5 does, for use in `module.apply`: embeddings from N(0, 1), matrices from N(0, 1/fan_in).

    Such matrices keep the variance of their input. Wq is multiplied by 1/√K, the factor that the attention scores lack.
    """
    if isinstance(module, TokenEmbedding):
        nn.init.normal_(module.weight)
    elif isinstance(module, nn.Linear) and not isinstance(module, Unembedding):
        nn.init.normal_(module.weight, std=module.in_features**-0.5)
    elif isinstance(module, MultiHeadAttention):  # visited after its layers
        with torch.no_grad():
            module.qkv.weight[: module.rows[0]] *= module.d_head**-0.5 / module.scale

"""The base of all Transformers: the settings of a block, and a function that builds a stack of blocks.

    encoder          self-attention in both directions                 BERT, the encoder of the Transformer and of T5
    decoder          causal self-attention                             GPT, Llama
    with cross       causal self-attention and cross-attention         the decoder of the Transformer and of T5

Models differ only in these settings: pre- or post-norm, LayerNorm or RMSNorm, ReLU or SwiGLU, learned or rotary
positions, biases or none. A part can also be left out, to see what it is for: norms, residual connections, positions,
the scale of the scores.
"""

from functools import partial
from typing import Literal

from pydantic import Field
from torch import nn

from clearformer.config import Config
from clearformer.layers.attention import Core, MultiHeadAttention
from clearformer.layers.blocks import RESIDUALS, BatchNormStack, Block, PreNorm, Stack
from clearformer.layers.feedforward import feed_forward
from clearformer.layers.norms import NORMS
from clearformer.layers.positions import PositionConfig

Activation = Literal["relu", "gelu", "gelu-tanh", "silu", "swiglu", "geglu", "geglu-tanh"]
NormName = Literal["layer", "rms", "batch", "none"]
ResidualName = Literal["pre", "post", "none"]


class StackConfig(Config):
    """The keys of [model] that define a block. The defaults are the base model of Vaswani et al. 2017 with pre-norm."""

    d_model: int = Field(512, gt=0, description="width of the model")
    d_ff: int = Field(2048, gt=0, description="width of the feed-forward networks")
    n_heads: int = Field(8, gt=0, description="attention heads per layer")
    n_kv_heads: int | None = Field(None, gt=0, description="number of key and value heads; default: n_heads")
    d_head: int | None = Field(None, gt=0, description="width of a head; default: d_model / n_heads")
    d_value: int | None = Field(None, gt=0, description="width of the values of a head; default: the width of a head")
    activation: Activation = Field("relu", description="feed-forward activation")
    norm: NormName = Field(
        "layer", description="type of every norm: LayerNorm, RMSNorm, batch norm over all tokens of a batch, or none"
    )
    norm_eps: float | None = Field(
        None, gt=0, description="ε of every norm; default: 1e-5 (layer, batch) or 1e-6 (rms)"
    )
    residual: ResidualName = Field(
        "pre", description="norm before each sublayer (pre) or after each residual sum (post); none: no residual sums"
    )
    first_norm: bool = Field(False, description="whether to normalise the sum of embeddings and positions")
    final_norm: bool | None = Field(
        None, description="whether a norm follows the last block; default: unless post-norm"
    )
    positions: PositionConfig = PositionConfig()
    max_length: int = Field(512, gt=0, description="max length of a text in tokens")
    attention_scale: float | None = Field(None, gt=0, description="factor on the attention scores; default: 1/√d_head")
    bias: bool = Field(True, description="whether linear layers have biases")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout probability on embeddings and sublayer outputs")
    attention_dropout: float = Field(0.0, ge=0, lt=1, description="dropout probability on attention patterns")
    activation_dropout: float = Field(0.0, ge=0, lt=1, description="dropout probability inside feed-forward networks")

    def model_post_init(self, _: object) -> None:
        if self.d_head is None and self.d_model % self.n_heads:
            raise ValueError(f"d_model = {self.d_model} must be a multiple of n_heads = {self.n_heads}")
        if self.n_kv_heads and self.n_heads % self.n_kv_heads:
            raise ValueError(f"n_heads = {self.n_heads} must be a multiple of n_kv_heads = {self.n_kv_heads}")
        if self.positions.kind == "rotary" and self.head_width % 2:
            raise ValueError(
                f"rotary positions need heads of even width, not {self.head_width}; set d_head to an even number"
            )

    @property
    def head_width(self) -> int:
        return self.d_head or self.d_model // self.n_heads

    @property
    def has_final_norm(self) -> bool:
        return self.residual != "post" if self.final_norm is None else self.final_norm


def build_norm(config: StackConfig) -> nn.Module:
    return NORMS[config.norm](config.d_model, **({} if config.norm_eps is None else {"eps": config.norm_eps}))


def build_stack(config: StackConfig, n_layers: int, core: Core, is_causal: bool, has_cross: bool = False) -> Stack:
    c = config
    norm = partial(build_norm, c)

    def residual() -> PreNorm:
        return RESIDUALS[c.residual](norm(), c.dropout)

    attention = partial(
        MultiHeadAttention,
        c.d_model,
        c.n_heads,
        c.n_kv_heads,
        c.d_head,
        c.d_value,
        bias=c.bias,
        scale=c.attention_scale,
        dropout=c.attention_dropout,
        core=core,
    )
    blocks = [
        Block(
            attention(),
            feed_forward(c.d_model, c.d_ff, c.activation, c.activation_dropout, c.bias),
            residual,
            cross=attention() if has_cross else None,
        )
        for _ in range(n_layers)
    ]
    positions = c.positions.build(c.d_model, c.n_heads, c.head_width, c.max_length, is_causal)
    final, first = (norm() if is_used else None for is_used in (c.has_final_norm, c.first_norm))
    stack = BatchNormStack if c.norm == "batch" else Stack
    return stack(blocks, positions, c.dropout, final, first)

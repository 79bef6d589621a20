"""What the Transformers of this house share: the sizes of a block, and how a stack of them is built.

    encoder          self-attention both ways                          BERT, the left half of the Transformer and of T5
    decoder          self-attention to the past                        GPT, Llama
    with cross       the same, and attention to a memory               the right half of the Transformer and of T5

Which model it is shows in the numbers alone: pre- or post-norm, LayerNorm or RMSNorm, ReLU or SwiGLU, learned or
rotary positions, biases or none.
"""

from functools import partial
from typing import Literal

from pydantic import Field
from torch import nn

from clearformer.config import Config
from clearformer.layers.attention import Core, MultiHeadAttention
from clearformer.layers.blocks import RESIDUALS, Block, PreNorm, Stack
from clearformer.layers.feedforward import feed_forward
from clearformer.layers.norms import NORMS
from clearformer.layers.positions import PositionConfig

Activation = Literal["relu", "gelu", "gelu-tanh", "silu", "swiglu", "geglu", "geglu-tanh"]


class StackConfig(Config):
    """The keys of [model] that say what a block is. The defaults are those of the paper's base model, pre-norm."""

    d_model: int = Field(512, gt=0)
    d_ff: int = Field(2048, gt=0)
    n_heads: int = Field(8, gt=0)
    n_kv_heads: int | None = Field(None, gt=0, description="key and value heads; n_heads when not given")
    d_head: int | None = Field(None, gt=0, description="width of a head; d_model / n_heads when not given")
    activation: Activation = "relu"
    norm: Literal["layer", "rms"] = "layer"
    norm_eps: float | None = Field(None, gt=0, description="ε of every norm; 1e-5 (layer) or 1e-6 (rms) if not given")
    residual: Literal["pre", "post"] = "pre"
    first_norm: bool = Field(False, description="a norm on the embeddings, once their positions are added")
    final_norm: bool | None = Field(None, description="a norm after the last block; as pre-norm wants it, if not given")
    positions: PositionConfig = PositionConfig()
    max_length: int = Field(512, gt=0, description="tokens a side, for tables of positions")
    attention_scale: float | None = Field(None, gt=0, description="of the scores; 1/√d_head when not given")
    bias: bool = True
    dropout: float = Field(0.1, ge=0, lt=1)
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    activation_dropout: float = Field(0.0, ge=0, lt=1)

    def model_post_init(self, _: object) -> None:
        if self.d_head is None and self.d_model % self.n_heads:
            raise ValueError(f"d_model = {self.d_model} must be a multiple of n_heads = {self.n_heads}")
        if self.n_kv_heads and self.n_heads % self.n_kv_heads:
            raise ValueError(f"n_heads = {self.n_heads} must be a multiple of n_kv_heads = {self.n_kv_heads}")
        if self.positions.kind == "rotary" and self.head_width % 2:
            raise ValueError(f"rotary positions need an even width of the heads, not {self.head_width}")

    @property
    def head_width(self) -> int:
        return self.d_head or self.d_model // self.n_heads

    @property
    def has_final_norm(self) -> bool:
        return self.residual == "pre" if self.final_norm is None else self.final_norm


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
    final, first = (norm() if wanted else None for wanted in (c.has_final_norm, c.first_norm))
    return Stack(blocks, positions, c.dropout, final, first)

"""The encoder–decoder Transformer of "Attention Is All You Need" (Vaswani et al. 2017).

    memory = encode(source)                       embed + positions, then L blocks of self-attention and feed-forward
    hidden = decode(target, memory)               the same, masked, and reading `memory` through cross-attention
    logits = head(hidden)                         a score for every word of the vocabulary at every position

Every variation is a field of the configuration: pre- or post-norm, ReLU or SwiGLU, sinusoidal or rotary, tied or not.
"""

from functools import partial
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from clearformer.config import Config
from clearformer.data.batch import Batch
from clearformer.layers.attention import Core, MultiHeadAttention
from clearformer.layers.backends import FusedCore
from clearformer.layers.blocks import RESIDUALS, Block, PreNorm, Stack
from clearformer.layers.cache import DecodeState
from clearformer.layers.embeddings import TokenEmbedding, Unembedding
from clearformer.layers.feedforward import feed_forward
from clearformer.layers.init import xavier
from clearformer.layers.masks import Causal, Mask, Padding
from clearformer.layers.norms import NORMS
from clearformer.layers.positions import PositionConfig


class TransformerConfig(Config):
    """[model] of kind "transformer". The defaults are the paper's base model, pre-norm."""

    kind: Literal["transformer"] = "transformer"
    preset: str | None = Field(None, description="a name that `clearformer inspect` takes, such as transformer-tiny")
    source_vocab: int = Field(37000, gt=0, description="entries; taken from the tokenizer when training")
    target_vocab: int = Field(37000, gt=0, description="entries; taken from the tokenizer when training")
    n_encoder_layers: int = Field(6, gt=0)
    n_decoder_layers: int = Field(6, gt=0)
    d_model: int = Field(512, gt=0)
    d_ff: int = Field(2048, gt=0)
    n_heads: int = Field(8, gt=0)
    n_kv_heads: int | None = Field(None, gt=0, description="key and value heads; n_heads when not given")
    activation: Literal["relu", "gelu", "gelu-tanh", "silu", "swiglu", "geglu"] = "relu"
    norm: Literal["layer", "rms"] = "layer"
    residual: Literal["pre", "post"] = "pre"
    final_norm: bool | None = Field(None, description="a norm after the last block; as pre-norm wants it, if not given")
    positions: PositionConfig = PositionConfig()
    max_length: int = Field(512, gt=0, description="tokens a side, for tables of positions")
    share: Literal["none", "decoder", "all"] = "all"  # embeddings: untied; head = target; head = target = source
    scale_embedding: bool = Field(True, description="multiply embeddings by √d_model, as the paper does")
    bias: bool = True
    head_bias: bool = False
    dropout: float = Field(0.1, ge=0, lt=1)
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    activation_dropout: float = Field(0.0, ge=0, lt=1)

    def model_post_init(self, _: object) -> None:
        if self.d_model % self.n_heads:
            raise ValueError(f"d_model = {self.d_model} must be a multiple of n_heads = {self.n_heads}")
        if self.n_kv_heads and self.n_heads % self.n_kv_heads:
            raise ValueError(f"n_heads = {self.n_heads} must be a multiple of n_kv_heads = {self.n_kv_heads}")
        if self.positions.kind == "rotary" and self.d_model // self.n_heads % 2:
            raise ValueError(f"rotary positions need an even d_model / n_heads, not {self.d_model // self.n_heads}")
        if self.share == "all" and self.source_vocab != self.target_vocab:
            raise ValueError('share = "all" needs one vocabulary for both sides; set share = "decoder"')

    @property
    def has_final_norm(self) -> bool:
        return self.residual == "pre" if self.final_norm is None else self.final_norm


class Transformer(nn.Module):
    """source (B, S), target (B, T) -> logits (B, T, V): at each position, scores for the next target token."""

    Config = TransformerConfig
    task = "translation"

    def __init__(self, config: TransformerConfig, core: Core | None = None) -> None:
        super().__init__()
        self.config = config
        self.encoder = build_stack(config, core or FusedCore(), is_decoder=False)
        self.decoder = build_stack(config, core or FusedCore(), is_decoder=True)
        self.apply(xavier)
        embedding = partial(TokenEmbedding, d_model=config.d_model, scale=config.scale_embedding)
        self.target_embedding = embedding(config.target_vocab)
        self.source_embedding = self.target_embedding if config.share == "all" else embedding(config.source_vocab)
        tied = None if config.share == "none" else self.target_embedding
        self.unembedding = Unembedding(config.d_model, config.target_vocab, config.head_bias, tied)

    def forward(self, batch: Batch) -> Tensor:
        return self.head(self.hidden(batch))

    def hidden(self, batch: Batch) -> Tensor:
        """The decoder's last layer (B, T, D), for objectives that fuse the head with their loss."""
        return self.decode(batch.target, self.encode(batch.source, batch.source_mask), batch.source_mask)

    def head(self, hidden: Tensor) -> Tensor:
        return self.unembedding(hidden)

    def encode(self, source: Tensor, source_mask: Tensor | None) -> Tensor:
        """source (B, S), source_mask (B, S) True at tokens, None if there is no padding -> memory (B, S, D)."""
        where = torch.arange(source.size(1), device=source.device)
        return self.encoder(self.source_embedding(source), where, padding(source_mask))

    def decode(self, target: Tensor, memory: Tensor, source_mask: Tensor | None) -> Tensor:
        """target (B, T), memory (B, S, D) -> hidden (B, T, D). Padding at the end of a target needs no mask:
        what a causal position cannot see cannot matter, and what the padded positions say is not counted."""
        where = torch.arange(target.size(1), device=target.device)
        return self.decoder(self.target_embedding(target), where, Causal(), memory, padding(source_mask))

    def start(self, source: Tensor, source_mask: Tensor | None) -> DecodeState:
        """Encode once, and project the memory once for every decoder block; nothing is decoded yet."""
        memory = self.encode(source, source_mask)
        keys_values = [block.cross.remember(memory) for block in self.decoder.blocks]  # type: ignore[operator, union-attr]
        return DecodeState(len(self.decoder.blocks), keys_values, source_mask)

    def step(self, tokens: Tensor, state: DecodeState) -> tuple[Tensor, DecodeState]:
        """One token on each of W branches of B sentences: tokens (B, W) -> logits (B, W, V)."""
        device = tokens.device
        where = torch.full((tokens.size(1),), state.position, device=device)
        mask = state.grow(tokens.size(0), tokens.size(1), device)
        slots = torch.tensor(state.slot_positions, device=device)
        x = self.target_embedding(tokens)
        hidden = self.decoder(x, where, mask, state.memory, padding(state.memory_keys), state.caches, slots)
        return self.head(hidden), state


def padding(keys: Tensor | None) -> Mask | None:
    return None if keys is None else Padding(keys)


def build_stack(config: TransformerConfig, core: Core, is_decoder: bool) -> Stack:
    c, norm = config, partial(NORMS[config.norm], config.d_model)

    def residual() -> PreNorm:
        return RESIDUALS[c.residual](norm(), c.dropout)

    attention = partial(
        MultiHeadAttention, c.d_model, c.n_heads, c.n_kv_heads, bias=c.bias, dropout=c.attention_dropout, core=core
    )
    blocks = [
        Block(
            attention(),
            feed_forward(c.d_model, c.d_ff, c.activation, c.activation_dropout, c.bias),
            residual,
            cross=attention() if is_decoder else None,
        )
        for _ in range(c.n_decoder_layers if is_decoder else c.n_encoder_layers)
    ]
    positions = c.positions.build(c.d_model, c.n_heads, c.d_model // c.n_heads, c.max_length, is_decoder)
    return Stack(blocks, positions, c.dropout, norm() if c.has_final_norm else None)

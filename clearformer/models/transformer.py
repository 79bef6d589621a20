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

from clearformer.data.batch import Batch
from clearformer.layers.attention import Core
from clearformer.layers.backends import FusedCore
from clearformer.layers.cache import DecodeState
from clearformer.layers.embeddings import TokenEmbedding, Unembedding
from clearformer.layers.init import xavier
from clearformer.layers.masks import Causal, Mask, Padding
from clearformer.models.stack import StackConfig, build_stack


class TransformerConfig(StackConfig):
    """[model] of kind "transformer". The defaults are the paper's base model, pre-norm."""

    kind: Literal["transformer"] = "transformer"
    preset: str | None = Field(None, description="a name that `clearformer inspect` takes, such as transformer-tiny")
    source_vocab: int = Field(37000, gt=0, description="entries; taken from the tokenizer when training")
    target_vocab: int = Field(37000, gt=0, description="entries; taken from the tokenizer when training")
    n_encoder_layers: int = Field(6, gt=0)
    n_decoder_layers: int = Field(6, gt=0)
    share: Literal["none", "decoder", "embeddings", "all"] = Field(
        "all", description="tables that are one: none; head = target; target = source; head = target = source"
    )
    scale_embedding: bool = Field(True, description="multiply embeddings by √d_model, as the paper does")
    scale_head: bool = Field(False, description="divide what the head reads by √d_model, as T5 does")
    head_bias: bool = False

    def model_post_init(self, context: object) -> None:
        super().model_post_init(context)
        if self.shares_embeddings and self.source_vocab != self.target_vocab:
            raise ValueError(f'share = "{self.share}" needs one vocabulary for both sides; set share = "decoder"')

    @property
    def shares_embeddings(self) -> bool:
        return self.share in ("embeddings", "all")


class Transformer(nn.Module):
    """source (B, S), target (B, T) -> logits (B, T, V): at each position, scores for the next target token."""

    Config = TransformerConfig
    task = "translation"
    batch_class = Batch
    begins_with = "bos"
    """The role of the token that the decoder reads before it has written any."""

    def __init__(self, config: TransformerConfig, core: Core | None = None) -> None:
        super().__init__()
        self.config = config
        core = core or FusedCore()
        self.encoder = build_stack(config, config.n_encoder_layers, core, is_causal=False)
        self.decoder = build_stack(config, config.n_decoder_layers, core, is_causal=True, has_cross=True)
        self.apply(xavier)
        embedding = partial(TokenEmbedding, d_model=config.d_model, scale=config.scale_embedding)
        self.target_embedding = embedding(config.target_vocab)
        self.source_embedding = self.target_embedding if config.shares_embeddings else embedding(config.source_vocab)
        tied = self.target_embedding if config.share in ("decoder", "all") else None
        self.unembedding = Unembedding(config.d_model, config.target_vocab, config.head_bias, tied)

    def forward(self, batch: Batch) -> Tensor:
        return self.head(self.hidden(batch))

    def hidden(self, batch: Batch) -> Tensor:
        """The decoder's last layer (B, T, D), for objectives that fuse the head with their loss."""
        return self.decode(batch.target, self.encode(batch.source, batch.source_mask), batch.source_mask)

    def head(self, hidden: Tensor) -> Tensor:
        return self.unembedding(hidden * self.config.d_model**-0.5 if self.config.scale_head else hidden)

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
        return DecodeState(len(keys_values), source.device, keys_values, source_mask)

    def step(self, tokens: Tensor, state: DecodeState) -> tuple[Tensor, DecodeState]:
        """One token on each of W branches of B sentences: tokens (B, W) -> logits (B, W, V)."""
        where, mask = state.grow(*tokens.shape)
        x, seen = self.target_embedding(tokens), padding(state.memory_keys)
        hidden = self.decoder(x, where, mask, state.memory, seen, state.caches, state.slots)
        return self.head(hidden), state


def padding(keys: Tensor | None) -> Mask | None:
    return None if keys is None else Padding(keys)

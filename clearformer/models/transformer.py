"""The encoder–decoder Transformer of "Attention Is All You Need" (Vaswani et al. 2017).

    memory = encode(source)                       embed + positions, then L blocks of self-attention and feed-forward
    hidden = decode(target, memory)               the same, with a causal mask, and cross-attention to `memory`
    logits = head(hidden)                         at each position, logits of the next token

Every variant is a setting: pre- or post-norm, ReLU or SwiGLU, sinusoidal or rotary positions, tied embeddings or not.
"""

from functools import partial
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from clearformer.data.batch import IGNORE, Batch
from clearformer.layers.attention import Core
from clearformer.layers.backends import FusedCore
from clearformer.layers.cache import DecodeState
from clearformer.layers.embeddings import TokenEmbedding, Unembedding
from clearformer.layers.init import xavier
from clearformer.layers.masks import Causal, Mask, Padding
from clearformer.models.stack import StackConfig, build_stack


class TransformerConfig(StackConfig):
    """The [model] table of a recipe, for kind = "transformer".

    The defaults are the base model of the paper, but with pre-norm.
    """

    kind: Literal["transformer"] = "transformer"
    preset: str | None = Field(None, description="name of a preset, such as transformer-tiny")
    source_vocab: int = Field(37000, gt=0, description="source vocabulary size, set from the tokenizer in training")
    target_vocab: int = Field(37000, gt=0, description="target vocabulary size, set from the tokenizer in training")
    n_encoder_layers: int = Field(6, gt=0, description="number of encoder blocks")
    n_decoder_layers: int = Field(6, gt=0, description="number of decoder blocks")
    share: Literal["none", "decoder", "embeddings", "all"] = Field(
        "all",
        description="tied embeddings: none; head and target (decoder); target and source (embeddings); all three (all)",
    )
    scale_embedding: bool = Field(True, description="whether to multiply embeddings by √d_model, as in the paper")
    scale_head: bool = Field(False, description="whether to divide the head's input by √d_model, as in T5")
    head_bias: bool = Field(False, description="whether the head has a bias")
    begins_with: Literal["bos", "eos", "pad"] = Field("bos", description="special token that the decoder starts with")

    def model_post_init(self, context: object) -> None:
        super().model_post_init(context)
        if self.shares_embeddings and self.source_vocab != self.target_vocab:
            raise ValueError(f'share = "{self.share}" needs one vocabulary for both languages; set share = "decoder"')

    @property
    def shares_embeddings(self) -> bool:
        return self.share in ("embeddings", "all")


class Transformer(nn.Module):
    """An encoder–decoder Transformer: source (B, S), target (B, T) -> logits (B, T, V) of each next target token."""

    Config = TransformerConfig
    task = "translation"
    batch_class = Batch
    is_recordable = True  # as a CUDA graph

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

    @property
    def begins_with(self) -> str:
        """The role of the special token that the decoder starts with."""
        return self.config.begins_with

    def hidden(self, batch: Batch) -> Tensor:
        """Return the output of the decoder, (B, T, D), for objectives that fuse the head with their loss."""
        memory = self.encode(batch.source, batch.source_mask)
        return self.decode(batch.target, memory, batch.source_mask, batch.labels != IGNORE)

    def head(self, hidden: Tensor) -> Tensor:
        return self.unembedding(hidden * self.config.d_model**-0.5 if self.config.scale_head else hidden)

    def encode(self, source: Tensor, source_mask: Tensor | None) -> Tensor:
        """Encode source (B, S) as memory (B, S, D). source_mask (B, S) is True at tokens, or None without padding."""
        where = torch.arange(source.size(1), device=source.device)
        return self.encoder(self.source_embedding(source), where, padding(source_mask), real=source_mask)

    def decode(self, target: Tensor, memory: Tensor, source_mask: Tensor | None, real: Tensor | None = None) -> Tensor:
        """Return the hidden states (B, T, D) of target (B, T), given memory (B, S, D).

        Padding at the end of a target needs no mask: causal positions do not see it, and losses ignore its outputs.
        Only batch norms have to know, in training, which positions are `real` (B, T).
        """
        where = torch.arange(target.size(1), device=target.device)
        return self.decoder(self.target_embedding(target), where, Causal(), memory, padding(source_mask), real=real)

    def start(self, source: Tensor, source_mask: Tensor | None) -> DecodeState:
        """Encode the source, and compute its keys and values for every decoder block. Nothing is decoded yet."""
        memory = self.encode(source, source_mask)
        keys_values = [block.remember(memory) for block in self.decoder.blocks]  # type: ignore[operator]
        return DecodeState(len(keys_values), source.device, keys_values, source_mask)

    def step(self, tokens: Tensor, state: DecodeState) -> tuple[Tensor, DecodeState]:
        """Read the next token of each of W hypotheses per sentence: tokens (B, W) -> logits (B, W, V) and state."""
        where, mask = state.grow(*tokens.shape)
        x, memory_mask = self.target_embedding(tokens), padding(state.memory_keys)
        hidden = self.decoder(x, where, mask, state.memory, memory_mask, state.caches, state.slots)
        return self.head(hidden), state


def padding(keys: Tensor | None) -> Mask | None:
    return None if keys is None else Padding(keys)

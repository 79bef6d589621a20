"""The decoder-only Transformer, which reads from left to right and predicts the next token (Radford et al. 2018, 2019).

    hidden = decoder(tokens)      embed + positions, then L blocks of causal self-attention and feed-forward
    logits = head(hidden)         at each position, logits of the next token

    GPT       post-norm, GELU, learned positions                                Radford et al. 2018
    GPT-2     pre-norm, a norm at the end, smaller initial residual weights     Radford et al. 2019
    GPT-3     like GPT-2, but larger                                            Brown et al. 2020
    Llama     RMSNorm, rotary, SwiGLU, grouped-query attention, no biases       Touvron et al. 2023

All of them are instances of this class and differ only in their configuration.
"""

from math import sqrt
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from clearformer.data.batch import IGNORE, TextBatch
from clearformer.layers.attention import Core
from clearformer.layers.backends import FusedCore
from clearformer.layers.cache import DecodeState
from clearformer.layers.embeddings import TokenEmbedding, Unembedding
from clearformer.layers.init import STD, gaussian
from clearformer.layers.masks import Causal, Documents, Mask, PrefixLM
from clearformer.layers.positions import PositionConfig
from clearformer.models.stack import Activation, StackConfig, build_stack


class GPTConfig(StackConfig):
    """The [model] table of a recipe, for kind = "gpt". The defaults are the smallest GPT-2: 124 million parameters."""

    kind: Literal["gpt"] = "gpt"
    preset: str | None = Field(None, description="name of a preset, such as gpt2-medium")
    vocab: int = Field(50257, gt=0, description="vocabulary size, set from the tokenizer in training")
    n_layers: int = Field(12, gt=0, description="number of blocks")
    d_model: int = Field(768, gt=0, description="width of the model")
    d_ff: int = Field(3072, gt=0, description="width of the feed-forward networks")
    n_heads: int = Field(12, gt=0, description="attention heads per layer")
    activation: Activation = Field("gelu-tanh", description="feed-forward activation")
    positions: PositionConfig = PositionConfig(kind="learned")
    max_length: int = Field(1024, gt=0, description="max length of a text in tokens")
    attention_dropout: float = Field(0.1, ge=0, lt=1, description="dropout probability on attention patterns")
    tied: bool = Field(True, description="whether the head is tied to the embedding")
    head_bias: bool = Field(False, description="whether the head has a bias")
    scale_embedding: bool = Field(False, description="whether to multiply embeddings by √d_model")
    prompt: Literal["causal", "full"] = Field(
        "causal", description="attention inside a prompt: causal, or full (in both directions), for a prefix LM"
    )


class GPT(nn.Module):
    """A decoder-only Transformer: tokens (B, T) -> logits (B, T, V) of the next token at each position."""

    Config = GPTConfig
    task = "causal-lm"
    batch_class = TextBatch
    is_recordable = True  # as a CUDA graph

    def __init__(self, config: GPTConfig, core: Core | None = None) -> None:
        super().__init__()
        self.config = config
        self.embedding = TokenEmbedding(config.vocab, config.d_model, config.scale_embedding)
        self.decoder = build_stack(config, config.n_layers, core or FusedCore(), is_causal=config.prompt == "causal")
        tied = self.embedding if config.tied else None
        self.unembedding = Unembedding(config.d_model, config.vocab, config.head_bias, tied)
        self.apply(gaussian)
        # Each block adds twice to the residual stream: 2L terms of variance 1/2L add up to a variance of 1.
        for name, parameter in self.decoder.named_parameters():
            if name.endswith(("attn.out.weight", "mlp.down.weight")):
                nn.init.normal_(parameter, std=STD / sqrt(2 * config.n_layers))

    def forward(self, batch: TextBatch) -> Tensor:
        return self.head(self.hidden(batch))

    def hidden(self, batch: TextBatch) -> Tensor:
        """Return the output of the decoder, (B, T, D), for objectives that fuse the head with their loss.

        Padding at the end of a row needs no mask: causal positions do not see it.
        """
        where = torch.arange(batch.tokens.size(1), device=batch.tokens.device)
        where = where if batch.positions is None else batch.positions
        mask: Mask = Causal() if batch.context is None else PrefixLM(batch.context)
        mask = mask if batch.documents is None else mask & Documents(batch.documents)
        real = batch.labels != IGNORE  # every token is predicted, except in a context
        real = real if batch.context is None else real | batch.context
        return self.decoder(self.embedding(batch.tokens), where, mask, real=real)

    def head(self, hidden: Tensor) -> Tensor:
        return self.unembedding(hidden)

    def start(self, tokens: Tensor, mask: Tensor | None) -> DecodeState:
        """Read the prompts, tokens (B, S), in one pass; S may be 0.

        mask (B, S) is True at tokens, or None without padding, which is at the end of a row. Nothing is predicted yet:
        the first call of `step` takes the token after the prompt.
        """
        state = DecodeState(self.config.n_layers, tokens.device)
        state.read(tokens.size(1), mask)
        full = None if mask is None else PrefixLM(mask)
        allowed = Causal() if self.config.prompt == "causal" else full
        self.decoder(self.embedding(tokens), state.slots, allowed, caches=state.caches)
        return state

    def step(self, tokens: Tensor, state: DecodeState) -> tuple[Tensor, DecodeState]:
        """Read the next token of each of W hypotheses per text: tokens (B, W) -> logits (B, W, V) and state."""
        where, mask = state.grow(*tokens.shape)
        hidden = self.decoder(self.embedding(tokens), where, mask, caches=state.caches, slots=state.slots)
        return self.head(hidden), state

"""The recurrent encoder–decoder, with attention (Bahdanau et al. 2015) or without it (Cho et al. 2014).

    h_j = [→h_j; ←h_j]                           the source, read in both directions
    s_0 = tanh(W_s ←h_1)                         at the first token, the backward RNN has read the whole source
    c_i = Σ_j α_ij h_j                           attention (layers/additive.py); without attention,
                                                 c = [→h_S; ←h_1] is the same for every token
    s_i = cell(W E y_i−1 + C c_i, s_i−1)         the decoder
    t_i = maxout(U_o s_i + V_o E y_i−1 + C_o c_i),  logits_i = W_o t_i

The appendix of the paper and the course notes have s_i−1 in t_i; equation 4 of the paper and this module have s_i. With
cell = "gru" the encoder uses torch's fused kernel, which applies the reset gate after the matrix product; "gru-notes"
is the cell of the paper.
"""

from functools import partial
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from clearformer.config import Config
from clearformer.data.batch import Batch
from clearformer.layers.additive import AdditiveAttention, FixedContext, Memory
from clearformer.layers.cache import RecurrentState
from clearformer.layers.cells import CellName
from clearformer.layers.embeddings import TokenEmbedding, Unembedding
from clearformer.layers.init import xavier
from clearformer.layers.recurrent import Step, autocast_off, recurrent


class Seq2SeqConfig(Config):
    """The [model] table of a recipe, for kind = "seq2seq".

    The defaults are the sizes of Bahdanau et al. 2015, except that the paper has 500 features in t_i.
    """

    kind: Literal["seq2seq"] = "seq2seq"
    preset: str | None = Field(None, description="name of a preset, such as bahdanau")
    source_vocab: int = Field(30000, gt=0, description="source vocabulary size, set from the tokenizer in training")
    target_vocab: int = Field(30000, gt=0, description="target vocabulary size, set from the tokenizer in training")
    cell: CellName = Field("gru", description="recurrent cell; layers/cells.py has the equations")
    attention: Literal["none", "additive"] = Field("none", description="attention of the decoder to the source")
    d_model: int = Field(1000, gt=0, description="width of the decoder and of each direction of the encoder")
    d_embedding: int = Field(620, gt=0, description="width of the embeddings and of the head's input")
    d_align: int | None = Field(None, gt=0, description="width of the alignment network; default: d_model")
    share: Literal["none", "decoder", "embeddings", "all"] = Field(
        "none",
        description="tied embeddings: none; head and target (decoder); target and source (embeddings); all three (all)",
    )
    dropout: float = Field(
        0.2, ge=0, lt=1, description="dropout probability on embeddings, encoder states and the head's input"
    )
    max_length: int = Field(512, gt=0, description="max length of a text in tokens; longer texts are truncated")
    begins_with: Literal["bos", "eos", "pad"] = Field("bos", description="special token that the decoder starts with")

    def model_post_init(self, _: object) -> None:
        if self.share in ("embeddings", "all") and self.source_vocab != self.target_vocab:
            raise ValueError(f'share = "{self.share}" needs one vocabulary for both languages; set share = "decoder"')


class Seq2Seq(nn.Module):
    """A recurrent encoder–decoder: source (B, S), target (B, T) -> logits (B, T, V) of each next target token."""

    Config = Seq2SeqConfig
    task = "translation"
    batch_class = Batch

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.config, D, E = config, config.d_model, config.d_embedding
        self.encoder = recurrent(config.cell, E, D, bidirectional=True)
        self.decoder = Decoder(config)
        self.bridge = nn.Linear(D, self.encoder.cell.n_states * D)  # W_s
        self.readout = nn.Linear(D + E + 2 * D, 2 * E)  # U_o, V_o and C_o side by side
        self.apply(xavier)
        embedding = partial(TokenEmbedding, d_model=E, scale=False)
        self.target_embedding = embedding(config.target_vocab)
        is_shared = config.share in ("embeddings", "all")
        self.source_embedding = self.target_embedding if is_shared else embedding(config.source_vocab)
        tied = self.target_embedding if config.share in ("decoder", "all") else None
        self.unembedding = Unembedding(E, config.target_vocab, tied=tied)  # W_o
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, batch: Batch) -> Tensor:
        return self.head(self.hidden(batch))

    @property
    def begins_with(self) -> str:
        """The role of the special token that the decoder starts with."""
        return self.config.begins_with

    def hidden(self, batch: Batch) -> Tensor:
        """Return t_1 … t_T, (B, T, E). Only the recurrence is computed token by token, the rest all at once."""
        words, states, contexts, _ = self.unroll(batch)
        return self.maxout(states, words, contexts)

    def attention_patterns(self, batch: Batch) -> Tensor | None:
        """Return the attention pattern of the decoder, (B, L, H, T, S) with L = H = 1, or None without attention."""
        *_, patterns = self.unroll(batch)
        return None if patterns[0] is None else torch.cat(patterns, dim=1)[:, None, None]

    def head(self, hidden: Tensor) -> Tensor:
        return self.unembedding(hidden)

    def unroll(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor, list[Any]]:
        """Run the decoder; returns E y (B, T, E), s (B, T, D), c (B, T, 2D) and each token's alignment (B, 1, S)."""
        state, memory = self.encode(batch.source, batch.source_mask)
        words = self.dropout(self.target_embedding(batch.target))
        states, contexts, patterns = [], [], []
        with autocast_off(words.device.type):
            for x in self.decoder.words(words).split(1, dim=1):
                state, context, pattern = self.decoder(x, state, *memory)
                states.append(self.encoder.cell.read(state))
                contexts.append(context)
                patterns.append(pattern)
        return words, torch.cat(states, dim=1), torch.cat(contexts, dim=1), patterns

    def encode(self, source: Tensor, source_mask: Tensor | None) -> tuple[Tensor, Memory]:
        """Encode source (B, S); returns the state s_0 (N, B, 1, D) and the memory of the attention layer.

        source_mask (B, S) is True at tokens.
        """
        x = self.dropout(self.source_embedding(source))
        outputs, last = self.encoder(x, None, None if source_mask is None else source_mask.sum(1))
        ends = [self.encoder.cell.read(last[:, direction]) for direction in (0, 1)]  # →h_S, ←h_1: (B, D) each
        with autocast_off(x.device.type):
            state = torch.tanh(self.bridge(ends[1])).unflatten(1, (-1, 1, self.config.d_model)).transpose(0, 1)
            summary = self.dropout(torch.cat(ends, dim=1))
            return state, self.decoder.attn.remember(self.dropout(outputs), summary, source_mask)

    def maxout(self, states: Tensor, words: Tensor, contexts: Tensor) -> Tensor:
        """Return t_i (B, T, E), the larger of every two features.

        The inputs are s_i (B, T, D), E y_i−1 (B, T, E) and c_i (B, T, 2D).
        """
        pairs = self.readout(torch.cat([states, words, contexts], dim=2)).unflatten(2, (-1, 2))
        return self.dropout(pairs.amax(-1))

    def start(self, source: Tensor, source_mask: Tensor | None) -> RecurrentState:
        state, memory = self.encode(source, source_mask)
        return RecurrentState(state, *memory)

    def step(self, tokens: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Read the next token of each of W hypotheses per sentence: tokens (B, W) -> logits (B, W, V) and state."""
        words = self.target_embedding(tokens)  # (B, W, E)
        with autocast_off(words.device.type):
            before = state.expanded(tokens.size(1))
            state.vectors, context, _ = self.decoder(self.decoder.words(words), before, *state.memory)
        return self.head(self.maxout(self.encoder.cell.read(state.vectors), words, context)), state


class Decoder(nn.Module):
    """A decoder step for W hypotheses per sentence.

    Input: the projected embedding of the last token, x (B, W, G·D), and the state (N, B, W, D). Output: the next state,
    the context (B, W, 2D) and the alignment.
    """

    is_block = True  # compiled as one unit

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        D = config.d_model
        attends = config.attention == "additive"
        self.attn: Any = AdditiveAttention(D, 2 * D, config.d_align or D) if attends else FixedContext()
        self.recur = Step(config.cell, D)
        self.words = nn.Linear(config.d_embedding, len(self.recur.cell.gate_names) * D)  # W
        self.context = nn.Linear(2 * D, len(self.recur.cell.gate_names) * D, bias=False)  # C

    def forward(
        self, x: Tensor, state: Tensor, keys: Tensor | None, memory: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        context, pattern = self.attn(self.recur.cell.read(state), keys, memory, mask)
        return self.recur(x + self.context(context), state), context, pattern

"""The recurrent language model: it reads word by word, and what it has read is one state (Mikolov et al. 2010).

    s_t = cell(E[x_t], s_t−1)           L layers, each reading the one below; embeddings or one-hot vectors
    logits_t = V h_t + c                at each position, a score for every word that may come next

The sizes and the dropout, on all but the connections through time, are those of Zaremba et al. 2014. Between batches
the state is carried along (data/streams.py), between decoding steps it is all that is remembered.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from clearformer.config import Config
from clearformer.data.batch import TextBatch
from clearformer.layers.cache import RecurrentState
from clearformer.layers.cells import CellName
from clearformer.layers.embeddings import OneHot, TokenEmbedding, Unembedding
from clearformer.layers.recurrent import Unrolled, recurrent
from clearformer.models.bert import there


class RNNConfig(Config):
    """[model] of kind "rnn-lm". The defaults are Zaremba et al.'s medium LSTM, of 19.8 million parameters."""

    kind: Literal["rnn-lm"] = "rnn-lm"
    preset: str | None = Field(None, description="a name that `clearformer inspect` takes, such as lstm-ptb-small")
    vocab: int = Field(10000, gt=0, description="entries; taken from the tokenizer when training")
    cell: CellName = Field("lstm", description="its equation: layers/cells.py")
    n_layers: int = Field(2, gt=0)
    d_model: int = Field(650, gt=0)
    embedding: Literal["learned", "tied", "one-hot"] = Field(
        "learned", description="tied: the head's matrix is the embedding's; one-hot: a vector as long as the vocabulary"
    )
    dropout: float = Field(0.5, ge=0, lt=1, description="on embeddings, between layers and on what the head reads")
    init: float = Field(0.05, gt=0, description="weights begin uniform between −init and init")
    word_head: bool = Field(True, description="says the next word; the base of a classifier does not")
    max_length: int = Field(8192, gt=0, description="tokens of a text to score or go on from: memory bounds them alone")


class RNN(nn.Module):
    """tokens (B, T) -> logits (B, T, V), or hidden (B, T, D) where there is no word head."""

    Config = RNNConfig
    task = "causal-lm"
    batch_class = TextBatch
    carries = True
    """Reads on from batch to batch: `read` takes a state and returns one."""

    def __init__(self, config: RNNConfig) -> None:
        super().__init__()
        self.config, V, D = config, config.vocab, config.d_model
        is_one_hot = config.embedding == "one-hot"
        self.embedding = OneHot(V) if is_one_hot else TokenEmbedding(V, D, scale=False)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = recurrent(config.cell, V if is_one_hot else D, D, config.n_layers, dropout=config.dropout)
        tied = self.embedding if config.embedding == "tied" else None
        self.unembedding = Unembedding(D, V, bias=True, tied=tied) if config.word_head else None  # type: ignore[arg-type]
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -config.init, config.init)

    def forward(self, batch: TextBatch) -> Tensor:
        hidden = self.hidden(batch)
        return hidden if self.unembedding is None else self.head(hidden)

    def hidden(self, batch: TextBatch) -> Tensor:
        """The last layer (B, T, D), every row read from its beginning."""
        return self.read(batch, None)[0]

    def read(self, batch: TextBatch, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """The last layer (B, T, D) and the state (N, L, B, D) at the end, given that before the batch.

        Padding at the end of a row needs no lengths: what comes later cannot matter.
        """
        x = self.dropout(self.embedding(batch.tokens))
        if state is not None and batch.goes_on is not None:
            state = state * batch.goes_on[:, None]
        if batch.positions is None:
            x, state = self.layers(x, state)
        else:
            x, state = read_apart(self.layers, x, batch.positions, state)
        return self.dropout(x), state

    def head(self, hidden: Tensor) -> Tensor:
        return there(self.unembedding, "word_head")(hidden)

    def start(self, tokens: Tensor, mask: Tensor | None) -> RecurrentState:
        """Read the prompts: tokens (B, S), which may be none, mask (B, S) True at tokens, then padding."""
        _, state = self.layers(self.embedding(tokens), None, None if mask is None else mask.sum(1))
        return RecurrentState(state[:, :, :, None])  # (N, L, B, 1, D)

    def step(self, tokens: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """One token on each of W branches of B texts: tokens (B, W) -> logits (B, W, V)."""
        before = state.branches(tokens.size(1)).flatten(2, 3)  # (N, L, B·W, D)
        hidden, after = self.layers(self.embedding(tokens.flatten()[:, None]), before)
        state.vectors = after.unflatten(2, tokens.shape)
        return self.head(hidden.unflatten(0, tokens.shape)[:, :, 0]), state


def read_apart(layers: Unrolled, x: Tensor, positions: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """The same of rows that hold several documents: each piece, from one position 0 to the next, is read by itself.

    x (B, T, D), positions (B, T), state (N, L, B, D), from which the piece that opens a row goes on.
    """
    T, n = x.size(1), positions.numel()
    starts = (positions == 0).flatten().nonzero()[:, 0]  # (P,), in rows laid end to end
    ends = torch.cat([starts[1:], starts.new_tensor([n])])
    steps = torch.arange(int((ends - starts).max()), device=x.device)
    pieces = x.flatten(0, 1)[(starts[:, None] + steps).clamp(max=n - 1)]  # (P, longest, D)
    if state is not None:
        state = state[:, :, starts // T] * (starts % T == 0)[:, None]  # (N, L, P, D)
    read, last = layers(pieces, state, ends - starts)
    is_real = steps < (ends - starts)[:, None]
    return read[is_real].unflatten(0, positions.shape), last[:, :, ends % T == 0]

"""The recurrent language model, which reads token by token into a state of fixed size (Mikolov et al. 2010).

    s_t = cell(E[x_t], s_t−1)           L layers, each reading the one below; E gives embeddings or one-hot vectors
    logits_t = V h_t + c                at each position, logits of the next token

Sizes and dropout follow Zaremba et al. 2014; dropout acts on all connections except those through time. The state is
carried from batch to batch (data/streams.py) and from decoding step to decoding step.
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
from clearformer.models.bert import require_head


class RNNConfig(Config):
    """The [model] table of a recipe, for kind = "rnn-lm". The defaults are the medium LSTM of Zaremba et al. 2014.

    It has 19.8 million parameters.
    """

    kind: Literal["rnn-lm"] = "rnn-lm"
    preset: str | None = Field(None, description="name of a preset, such as lstm-ptb-small")
    vocab: int = Field(10000, gt=0, description="vocabulary size, set from the tokenizer in training")
    cell: CellName = Field("lstm", description="recurrent cell; layers/cells.py has the equations")
    n_layers: int = Field(2, gt=0, description="number of recurrent layers")
    d_model: int = Field(650, gt=0, description="width of the recurrent layers")
    embedding: Literal["learned", "tied", "one-hot"] = Field(
        "learned", description="input vectors: learned, learned and tied to the head, or one-hot over the vocabulary"
    )
    dropout: float = Field(
        0.5, ge=0, lt=1, description="dropout probability on embeddings, between layers and on the head's input"
    )
    init: float = Field(0.05, gt=0, description="weights are initialised uniformly between −init and init")
    word_head: bool = Field(True, description="whether there is a head that predicts tokens; false in a classifier")
    max_length: int = Field(8192, gt=0, description="max length of a text or prompt in tokens, limited only by memory")


class RNN(nn.Module):
    """A recurrent language model: tokens (B, T) -> logits (B, T, V), or hidden states (B, T, D) without a word head."""

    Config = RNNConfig
    task = "causal-lm"
    batch_class = TextBatch
    carries = True
    """The state is carried from batch to batch: `read` takes a state and returns one."""

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

    @property
    def is_recordable(self) -> bool:
        """Whether training steps can be recorded as CUDA graphs: cuDNN reads the seed of its dropout on the host."""
        return self.config.dropout == 0

    def forward(self, batch: TextBatch) -> Tensor:
        hidden = self.hidden(batch)
        return hidden if self.unembedding is None else self.head(hidden)

    def hidden(self, batch: TextBatch) -> Tensor:
        """Return the output of the last layer, (B, T, D), where each row starts from a state of zeros."""
        return self.read(batch, None)[0]

    def read(self, batch: TextBatch, state: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the output of the last layer, (B, T, D), and the state (N, L, B, D) after the batch.

        `state` is the state before the batch. Padding at the end of a row needs no lengths: later tokens do not affect
        earlier ones.
        """
        x = self.dropout(self.embedding(batch.tokens))
        if state is not None and batch.continues is not None:
            state = state * batch.continues[:, None]
        if batch.positions is None:
            x, state = self.layers(x, state)
        else:
            x, state = read_apart(self.layers, x, batch.positions, state)
        return self.dropout(x), state

    def head(self, hidden: Tensor) -> Tensor:
        return require_head(self.unembedding, "word_head")(hidden)

    def start(self, tokens: Tensor, mask: Tensor | None) -> RecurrentState:
        """Read the prompts, tokens (B, S); S may be 0. mask (B, S) is True at tokens; padding is at the end."""
        _, state = self.layers(self.embedding(tokens), None, None if mask is None else mask.sum(1))
        return RecurrentState(state[:, :, :, None])  # (N, L, B, 1, D)

    def step(self, tokens: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Read the next token of each of W hypotheses per text: tokens (B, W) -> logits (B, W, V) and state."""
        before = state.expanded(tokens.size(1)).flatten(2, 3)  # (N, L, B·W, D)
        hidden, after = self.layers(self.embedding(tokens.flatten()[:, None]), before)
        state.vectors = after.unflatten(2, tokens.shape)
        return self.head(hidden.unflatten(0, tokens.shape)[:, :, 0]), state


def read_apart(layers: Unrolled, x: Tensor, positions: Tensor, state: Tensor | None) -> tuple[Tensor, Tensor]:
    """Run the layers over each document of a row separately; a document starts wherever positions (B, T) is 0.

    x has shape (B, T, D). The first document of each row continues from `state`, (N, L, B, D).
    """
    T, n = x.size(1), positions.numel()
    starts = (positions == 0).flatten().nonzero()[:, 0]  # (P,), in rows laid end to end
    ends = torch.cat([starts[1:], starts.new_tensor([n])])
    steps = torch.arange(int((ends - starts).max()), device=x.device)
    documents = x.flatten(0, 1)[(starts[:, None] + steps).clamp(max=n - 1)]  # (P, longest, D)
    if state is not None:
        state = state[:, :, starts // T] * (starts % T == 0)[:, None]  # (N, L, P, D)
    outputs, last = layers(documents, state, ends - starts)
    is_real = steps < (ends - starts)[:, None]
    return outputs[is_real].unflatten(0, positions.shape), last[:, :, ends % T == 0]

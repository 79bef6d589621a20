"""Minimal language models: an embedding, one recurrent or attention layer, and a head for the next character."""

from copy import deepcopy
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.claims.jacobians import through_layer, through_time
from clearformer.layers.attention import MultiHeadAttention
from clearformer.layers.blocks import PreNorm
from clearformer.layers.cells import CELLS
from clearformer.layers.masks import Causal
from clearformer.layers.positions import Sinusoidal
from clearformer.layers.recurrent import recurrent

D, H = 32, 2
DEEP = 6  # convolutions
LONGEST = 512


class Reader(nn.Module):
    def __init__(self, n_letters: int) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(n_letters, D), nn.Linear(D, n_letters)

    def hidden(self, x: Tensor) -> Tensor:
        """Return the hidden states (B, T, D) of embeddings x (B, T, D)."""
        raise NotImplementedError

    def matrices(self) -> list[Tensor]:
        """The matrices through which a gradient flows back in time, each (D, D)."""
        raise NotImplementedError

    def norms(self, tokens: Tensor) -> Tensor:
        """Return norms (B, T): entry d is the gradient norm of the last state with respect to position T − d."""
        raise NotImplementedError

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.hidden(self.embed(tokens)))

    def orthogonal(self, gain: float = 1.0) -> Self:
        """Initialise each matrix as `gain` times an orthogonal matrix, instead of torch's default."""
        for matrix in self.matrices():
            nn.init.orthogonal_(matrix, gain)
        return self


class Recurrent(Reader):
    def __init__(self, n_letters: int, cell: str) -> None:
        super().__init__(n_letters)
        self.cell, self.layer = CELLS[cell], recurrent(cell, D, D)

    def hidden(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]

    def matrices(self) -> list[Tensor]:
        return list(self.layer.weights.weight_hh_l0.data.split(D))  # one matrix per gate

    def norms(self, tokens: Tensor, is_linear: bool = False) -> Tensor:
        """Compute the norms in float64. `is_linear` removes the tanh of an RNN, so that each factor is W."""
        exact = deepcopy(self).double()
        weights = exact.layer.weights
        W, b = weights.weight_hh_l0, weights.bias_hh_l0
        inputs = F.linear(exact.embed(tokens), weights.weight_ih_l0, weights.bias_ih_l0)
        start = inputs.new_zeros(self.cell.n_states, len(tokens), D)

        def step(x: Tensor, state: Tensor) -> Tensor:
            return x + F.linear(state, W, b) if is_linear else self.cell.step(x, state, W, b)

        return through_time(step, inputs, start)[:, :-1]


class Convolutional(Reader):
    """DEEP causal convolutions of width 3 with relu: a state reaches back 2 · DEEP positions, and no further."""

    def __init__(self, n_letters: int) -> None:
        super().__init__(n_letters)
        self.convs = nn.ModuleList(nn.Conv1d(D, D, 3) for _ in range(DEEP))

    def hidden(self, x: Tensor) -> Tensor:
        x = x.transpose(1, 2)  # (B, D, T)
        for conv in self.convs:
            x = F.relu(conv(F.pad(x, (2, 0))))
        return x.transpose(1, 2)

    def matrices(self) -> list[Tensor]:
        convs: Any = self.convs
        return [conv.weight.data[:, :, i] for conv in convs for i in range(3)]

    def norms(self, tokens: Tensor) -> Tensor:
        exact = deepcopy(self).double()
        return through_layer(exact.hidden, exact.embed(tokens))


class Attentive(Reader):
    """A causal attention layer with sinusoidal positions: x + attention(norm(x))."""

    def __init__(self, n_letters: int) -> None:
        super().__init__(n_letters)
        self.positions = Sinusoidal(D, LONGEST)
        self.attn, self.residual = MultiHeadAttention(D, H), PreNorm(nn.LayerNorm(D), dropout=0.0)

    def hidden(self, x: Tensor) -> Tensor:
        T = x.size(1)
        x = self.positions.add(x, torch.arange(T))
        return self.residual(x, lambda h: self.attn(h, mask=Causal().dense(T, T, x.device)))

    def matrices(self) -> list[Tensor]:
        return [*self.attn.qkv.weight.data.split(D), self.attn.out.weight.data]

    def norms(self, tokens: Tensor) -> Tensor:
        exact = deepcopy(self).double()
        return through_layer(exact.hidden, exact.embed(tokens))

"""The position-wise feed-forward network, applied to each position separately after attention has mixed the positions.

FFN(x)    = W2 · act(W1 x + b1) + b2                    Vaswani et al. 2017, eq. 2, with ReLU
SwiGLU(x) = W2 · (silu(Wg x) ⊙ W1 x)                    Shazeer 2020
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.layers.dropout import Dropout


def gelu(x: Tensor) -> Tensor:
    """GELU(x) = x Φ(x), by torch's own kernel on the CPU too.

    There, torch leaves contiguous tensors to oneDNN, which compiles a program for every shape. Its parts stay in memory
    between the tensors of a training, whose free memory no longer joins: a BERT with 1.7 GB of tensors grew from 2.0 to
    3.2 GB in a hundred steps. A transposed tensor is read in the same order, at the same speed.
    """
    if x.device.type == "cpu" and x.dim() > 1 and not torch.compiler.is_compiling():
        return F.gelu(x.mT).mT
    return F.gelu(x)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}
GATED: dict[str, Callable[[Tensor], Tensor]] = {
    "swiglu": F.silu,
    "geglu": gelu,
    "geglu-tanh": ACTIVATIONS["gelu-tanh"],
}


class FeedForward(nn.Module):
    """A feed-forward network with F hidden features, (B, T, D) -> (B, T, D)."""

    def __init__(
        self, d_model: int, d_ff: int, activation: str = "relu", dropout: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__()
        self.kind, self.activation = activation, ACTIVATIONS[activation]
        self.up = nn.Linear(d_model, d_ff, bias)
        self.dropout = Dropout(dropout)
        self.down = nn.Linear(d_ff, d_model, bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.dropout(self.activation(self.up(x))))


class GatedFeedForward(nn.Module):
    """Like FeedForward, but one half of the hidden features gates the other half. `up` computes both: [gate; value]."""

    def __init__(
        self, d_model: int, d_ff: int, activation: str = "swiglu", dropout: float = 0.0, bias: bool = False
    ) -> None:
        super().__init__()
        self.activation = GATED[activation]
        self.up = nn.Linear(d_model, 2 * d_ff, bias)
        self.dropout = Dropout(dropout)
        self.down = nn.Linear(d_ff, d_model, bias)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.up(x).chunk(2, dim=-1)  # (B, T, F) each
        return self.down(self.dropout(self.activation(gate) * value))


def feed_forward(d_model: int, d_ff: int, activation: str, dropout: float, bias: bool) -> nn.Module:
    """Build a gated network if the activation is gated, and a plain one otherwise."""
    network = GatedFeedForward if activation in GATED else FeedForward
    return network(d_model, d_ff, activation, dropout, bias)

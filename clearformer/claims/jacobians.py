"""The norm of ∂h_t/∂h_k against the distance t − k: how far back a gradient reaches.

    ∂h_t/∂h_k = ∂h_t/∂h_{t−1} · … · ∂h_{k+1}/∂h_k          the largest singular value of the product is its norm

With a linear activation each factor is W: the norm stays 1 if W is orthogonal, and falls as ρ^(t−k) if its spectral
radius ρ is below 1. The state of a cell is everything that it passes to the next step: for an LSTM, h and m.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import jacrev, vmap

Step = Callable[[Tensor, Tensor], Tensor]  # x (…, G·D), state (N, …, D) -> state (N, …, D)


def through_time(step: Step, inputs: Tensor, start: Tensor) -> Tensor:
    """Return norms (B, T + 1); entry d is the norm of ∂s_T/∂s_{T−d}.

    s_0 is start (N, B, D), and s_1 … s_T are computed from inputs (B, T, G·D).
    """
    states = [start]
    for x in inputs.unbind(1)[:-1]:
        states.append(step(x, states[-1]))
    before = torch.stack(states, dim=2).permute(1, 2, 0, 3)  # (B, T, N, D)
    size = before.size(2) * before.size(3)
    factors = vmap(vmap(jacrev(step, argnums=1)))(inputs, before).reshape(*inputs.shape[:2], size, size)
    products = [torch.eye(size, dtype=inputs.dtype).expand(len(inputs), size, size)]
    for factor in reversed(factors.unbind(1)):
        products.append(products[-1] @ factor)
    return torch.linalg.matrix_norm(torch.stack(products, dim=1), 2)


def through_layer(layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return norms (B, T); entry d is the norm of ∂h_T/∂x_{T−d}, where h = layer(x) and x is (B, T, D)."""
    jacobian = vmap(jacrev(lambda row: layer(row[None])[0, -1]))(x)  # (B, D, T, D)
    return torch.linalg.matrix_norm(jacobian.transpose(1, 2), 2).flip(1)

"""An exponential moving average of the weights: steadier than any single step's.

a ← a + (1 − d) (θ − a),    d = min(decay, (1 + k) / (10 + k)) at step k, so that the start is soon forgotten
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """`weights` that learn, by parameter name, a tied one named once; sliced over the ranks as the model's own are."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights: dict[str, Tensor] = {name: p.detach().clone() for name, p in learning(model)}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.weights.values()), [p.detach() for _, p in learning(model)], 1 - decay)

    @contextmanager
    def swapped_in(self, model: nn.Module) -> Iterator[None]:
        """Inside, the model computes with the averaged weights; afterwards its own are back, bit for bit.

        Values move, tensors stay: optimisers, compiled graphs and shards hold on to the tensors themselves.
        """
        own = Average(model, 0.0)
        fill(model, self.weights)
        try:
            yield
        finally:
            fill(model, own.weights)


@torch.no_grad()
def fill(model: nn.Module, weights: dict[str, Tensor]) -> None:
    for name, p in learning(model):
        p.copy_(weights[name])


def learning(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """A frozen weight is its own average."""
    return ((name, p) for name, p in model.named_parameters() if p.requires_grad)

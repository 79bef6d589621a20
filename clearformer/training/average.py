"""An exponential moving average of the weights, and of batch norms' statistics: steadier than any single step's.

a ← a + (1 − d) (θ − a),    d = min(decay, (1 + k) / (10 + k)) at step k, so that the start is soon forgotten
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from clearformer.training.statistics import statistics


class Average:
    """`weights` that learn, by name, a tied one named once; sliced over the ranks as the model's own are."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay, own = decay, dict(learning(model))
        self.own = list(own.values())  # the model's, looked up once
        self.weights: dict[str, Tensor] = {name: tensor.clone() for name, tensor in own.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.weights.values()), self.own, 1 - decay)

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
    for name, tensor in learning(model):
        tensor.copy_(weights[name])


def learning(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """A frozen weight is its own average."""
    yield from ((name, p.detach()) for name, p in model.named_parameters() if p.requires_grad)
    yield from statistics(model)

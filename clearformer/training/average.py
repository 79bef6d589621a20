"""The exponential moving average of weights and batch-norm statistics, less noisy than the weights of any one step.

a ← a + (1 − d) (θ − a),    d = min(decay, (1 + k) / (10 + k)) at step k, so that the initial weights soon fade out
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from clearformer.checkpoint import Stored, like
from clearformer.training.statistics import statistics


class Average:
    """`weights` maps the name of each trainable tensor to its average. Tied tensors occur once."""

    def __init__(self, model: nn.Module, decay: float, is_recorded: bool = False) -> None:
        self.decay, tensors = decay, dict(learning(model))
        self.tensors = list(tensors.values())  # of the model, looked up once
        self.weights: dict[str, Tensor] = {name: tensor.clone() for name, tensor in tensors.items()}
        self.gain: float | Tensor = 0.0  # 1 − d; a tensor if steps are recorded, so that a CUDA graph follows it
        if is_recorded:
            self.gain = torch.zeros((), dtype=self.tensors[0].dtype, device=self.tensors[0].device)

    def set_step(self, step: int) -> None:
        """Set d for the next update."""
        gain = 1 - min(self.decay, (1 + step) / (10 + step))
        if isinstance(self.gain, Tensor):
            self.gain.fill_(gain)
        else:
            self.gain = gain

    @torch.no_grad()
    def update(self) -> None:
        weights = list(self.weights.values())
        if isinstance(self.gain, Tensor):  # torch's lerp takes no tensor for many tensors at once
            change = torch._foreach_sub(self.tensors, weights)
            torch._foreach_mul_(change, self.gain)
            torch._foreach_add_(weights, change)
        else:
            torch._foreach_lerp_(weights, self.tensors, self.gain)

    def load(self, weights: Mapping[str, Tensor | Stored]) -> None:
        """Continue from an average that was saved; sharded tensors take their part of it."""
        for name, tensor in weights.items():
            self.weights[name].copy_(like(tensor, self.weights[name]))

    @contextmanager
    def swapped_in(self, model: nn.Module) -> Iterator[None]:
        """Use the averaged weights inside the context; restore the model's weights bit for bit afterwards.

        Values are copied in place: optimisers, compiled graphs and shards keep references to the tensors.
        """
        before = Average(model, 0.0)
        fill(model, self.weights)
        try:
            yield
        finally:
            fill(model, before.weights)


@torch.no_grad()
def fill(model: nn.Module, weights: dict[str, Tensor]) -> None:
    for name, tensor in learning(model):
        tensor.copy_(weights[name])


def learning(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The trainable weights and the batch-norm statistics that are updated. Frozen weights need no average."""
    yield from ((name, p.detach()) for name, p in model.named_parameters() if p.requires_grad)
    yield from statistics(model)

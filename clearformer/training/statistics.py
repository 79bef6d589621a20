"""What batch norms remember of the batches they saw: μ ← (1 − m) μ + m mean(batch), and the variance likewise.

No gradient moves these, and yet what a model says in use depends on them. So they are averaged as the weights are
(average.py), every rank holds the mean of what all ranks saw, and a norm that does not learn keeps those it has: where
a part of a model is trained, the rest of it is saved with its base, and must be what it was there.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from clearformer.training.distributed import World


def set_training(model: nn.Module) -> None:
    """Training mode, except for batch norms that do not learn."""
    model.train()
    for module in model.modules():
        if isinstance(module, _BatchNorm) and not learns(module):
            module.eval()


def learns(norm: _BatchNorm) -> bool:
    """One without weights always does."""
    return all(p.requires_grad for p in norm.parameters())


def statistics(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The running means and variances of batch norms that learn, by name."""
    for path, module in model.named_modules():
        if isinstance(module, _BatchNorm) and learns(module):
            for name, buffer in module.named_buffers(recurse=False):
                if buffer.is_floating_point():
                    yield f"{path}.{name}".lstrip("."), buffer


@torch.no_grad()
def share_statistics(model: nn.Module, world: World) -> None:
    """The mean over all ranks, on every rank, in one message."""
    if world.size > 1 and (found := [buffer for _, buffer in statistics(model)]):
        flat = world.sum(torch.cat([buffer.flatten() for buffer in found])) / world.size
        for buffer, part in zip(found, flat.split([buffer.numel() for buffer in found])):
            buffer.copy_(part.view_as(buffer))

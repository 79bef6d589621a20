"""The running statistics of batch norm: μ ← (1 − m) μ + m mean(batch), with the same rule for the variance.

They are not trained by gradients, but inference depends on them. Therefore they are averaged like the weights
(average.py), they are averaged over all ranks, and a frozen batch norm does not update them: if only a part of a model
is trained, the other weights and statistics are stored with its base and must not change.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from clearformer.training.distributed import World


def set_training(model: nn.Module) -> None:
    """Switch to training mode, except for frozen batch norms."""
    model.train()
    for module in model.modules():
        if isinstance(module, _BatchNorm) and not learns(module):
            module.eval()


def learns(norm: _BatchNorm) -> bool:
    """Whether a batch norm is trained. A batch norm without weights always counts as trained."""
    return all(p.requires_grad for p in norm.parameters())


def statistics(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The running means and variances of the batch norms that are trained, by name."""
    for path, module in model.named_modules():
        if isinstance(module, _BatchNorm) and learns(module):
            for name, buffer in module.named_buffers(recurse=False):
                if buffer.is_floating_point():
                    yield f"{path}.{name}".lstrip("."), buffer


@torch.no_grad()
def average_statistics(model: nn.Module, world: World) -> None:
    """Replace the statistics by their mean over all ranks, with one all-reduce."""
    if world.size > 1 and (buffers := [buffer for _, buffer in statistics(model)]):
        flat = world.sum(torch.cat([buffer.flatten() for buffer in buffers])) / world.size
        for buffer, part in zip(buffers, flat.split([buffer.numel() for buffer in buffers])):
            buffer.copy_(part.view_as(buffer))

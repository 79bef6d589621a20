"""One training on many processes, as torchrun starts them.

Every rank plans the same batches and takes its share; each adds up its loss over its own tokens, divided by the count
of all ranks, so that the summed gradients are those of one large batch, exactly.

    replicate   every rank holds the whole model; gradients are summed once a step    all-reduce
    shard       every rank holds a slice of each weight, gathered block by block      FSDP2
"""

import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


@dataclass(frozen=True)
class World:
    """Which process this is, of how many."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def share(self, batches: list[Any]) -> list[Any]:
        """This rank's part of the batches of a step."""
        return batches[self.rank :: self.size]

    def sum(self, value: Tensor) -> Tensor:
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier()


def join_world(device: torch.device) -> World:
    """Join the processes that torchrun started, if it did."""
    if "WORLD_SIZE" not in os.environ or int(os.environ["WORLD_SIZE"]) == 1:
        return World()
    if not dist.is_initialized():
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return World(dist.get_rank(), dist.get_world_size())


def leave_world() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def shard(model: nn.Module, device: torch.device) -> None:
    """Slice every block's weights over the ranks, then what is left of the model."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for module in model.modules():
        if isinstance(module, nn.ModuleList):
            for block in module:
                fully_shard(block, mesh=mesh).set_gradient_divide_factor(1.0)
    fully_shard(model, mesh=mesh).set_gradient_divide_factor(1.0)


def sum_gradients(parameters: list[nn.Parameter]) -> None:
    """Add up the gradients of all ranks, in one message a type."""
    for dtype in {p.dtype for p in parameters}:
        grads = [p.grad for p in parameters if p.dtype == dtype and p.grad is not None]
        flat = torch.cat([g.flatten() for g in grads])
        dist.all_reduce(flat)
        for g, part in zip(grads, flat.split([g.numel() for g in grads])):
            g.copy_(part.view_as(g))

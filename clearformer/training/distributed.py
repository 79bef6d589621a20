"""One training on many processes, as torchrun starts them.

Every rank plans the same batches and takes its share; each adds up its loss over its own tokens, divided by the count
of all ranks, so that the summed gradients are those of one large batch, exactly.

    replicate   every rank holds the whole model; gradients are summed once a step    all-reduce
    shard       every rank holds a slice of each weight, gathered block by block      FSDP2
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

Value = TypeVar("Value")

PATIENCE = timedelta(hours=4)  # how long ranks wait for one another: the first prepares the corpus and writes alone


@dataclass(frozen=True)
class World:
    """Which process this is, of how many. Alone, everything below is free."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def share(self, batches: Sequence[Value]) -> list[Value]:
        """This rank's part of the batches of a step."""
        return list(batches[self.rank :: self.size])

    def sum(self, value: Tensor) -> Tensor:
        """The sum over all ranks, written over `value`."""
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def any(self, flag: bool) -> bool:
        """Whether it is so on any rank. The hosts ask one another; no accelerator is waited for."""
        return self.sum(torch.tensor(int(flag))).item() > 0

    def agree(self, value: Value) -> Value:
        """What the first rank says, on every rank."""
        box: list[Any] = [value]
        if self.size > 1:
            dist.broadcast_object_list(box, device=torch.device("cpu"))
        return box[0]

    def gather(self, value: Value) -> list[Value]:
        """What each rank says, on every rank."""
        if self.size == 1:
            return [value]
        box: list[Any] = [None] * self.size
        dist.all_gather_object(box, value)
        return box

    def barrier(self) -> None:
        self.any(False)


def join_world(device: torch.device) -> World:
    """Join the processes that torchrun started, if it did. Accelerators talk over NCCL, hosts over gloo."""
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        return World()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    return World(dist.get_rank(), dist.get_world_size())


def leave_world() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def sum_gradients(parameters: Sequence[nn.Parameter], world: World) -> None:
    """Add up the gradients of all ranks, in one message a type."""
    grads = [p.grad for p in parameters if p.grad is not None]
    for dtype in dict.fromkeys(g.dtype for g in grads):
        some = [g for g in grads if g.dtype == dtype]
        flat = world.sum(torch.cat([g.flatten() for g in some]))
        for g, part in zip(some, flat.split([g.numel() for g in some])):
            g.copy_(part.view_as(g))


def shard(model: nn.Module, device: torch.device) -> None:
    """Slice every block's weights over the ranks, then what is left of the model.

    Gradients are summed, not averaged, since each rank has divided by the tokens of all. `hidden`, `read` or `answers`
    is where a forward pass enters the model; what it gathers outside the blocks, embeddings and head, stays until the
    backward pass ends.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    for part in [*(block for blocks in reversed(lists) for block in blocks), model]:
        sharded: Any = fully_shard(part, mesh=mesh, reshard_after_forward=part is not model)
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)  # gloo knows no other
    for name in ("hidden", "read", "answers"):
        if hasattr(model, name):
            register_fsdp_forward_method(model, name)


@contextmanager
def gathered(model: nn.Module) -> Iterator[None]:
    """Inside, every rank holds the whole of a sharded model, so that any of its methods may be called: decoding, say.

    It costs the memory of all weights, though not of their gradients and optimiser. A model in one piece stays so.
    """
    parts: list[Any] = [module for module in model.modules() if hasattr(module, "unshard")]
    for part in parts:
        part.set_reshard_after_forward(False, recurse=False)
        part.unshard()
    try:
        yield
    finally:
        for part in parts:
            part.set_reshard_after_forward(part is not model, recurse=False)
            part.reshard()

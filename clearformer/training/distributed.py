"""Distributed training with torchrun.

Every rank plans the same batches and trains on its part of them. It sums the loss over its tokens and divides by the
token count of all ranks, so that the summed gradients are exactly those of one large batch.

    replicate   every rank holds the whole model; gradients are summed once per step  all-reduce, in buckets
    shard       every rank holds a shard of each weight, gathered block by block      FSDP2
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from clearformer.training.joining import join_name
from clearformer.training.journal import console
from clearformer.training.meeting import Meeting
from clearformer.wording import count

Value = TypeVar("Value")


@dataclass(frozen=True)
class World:
    """The rank of this process, and the number of processes. With one process, the methods below cost nothing."""

    rank: int = 0
    size: int = 1
    meeting: Meeting | None = None

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def select(self, batches: Sequence[Value]) -> list[Value]:
        """The batches of a step that this rank trains on."""
        return list(batches[self.rank :: self.size])

    def sum(self, value: Tensor) -> Tensor:
        """The sum over all ranks, computed in place."""
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def any(self, flag: bool) -> bool:
        """Whether `flag` is set on any rank. The hosts communicate, so that no accelerator is waited for."""
        return self.sum(torch.tensor(int(flag))).item() > 0

    def largest(self, *values: int) -> list[int]:
        """The largest of each value over all ranks. The hosts communicate."""
        if self.size == 1:
            return [*values]
        maxima = torch.tensor(values)
        dist.all_reduce(maxima, op=dist.ReduceOp.MAX)
        return maxima.tolist()

    def agree(self, value: Value) -> Value:
        """The value of the first rank, broadcast to every rank."""
        box: list[Any] = [value]
        if self.size > 1:
            dist.broadcast_object_list(box, device=torch.device("cpu"))
        return box[0]

    def gather(self, value: Value) -> list[Value]:
        """The values of all ranks, on every rank."""
        if self.size == 1:
            return [value]
        box: list[Any] = [None] * self.size
        dist.all_gather_object(box, value)
        return box

    def barrier(self) -> None:
        """Wait for all ranks, however long they work alone; raise if one has died or stopped."""
        if self.meeting is not None:
            self.meeting.barrier()


def join_world(device: torch.device, seconds: float = 60) -> World:
    """Join the process group of torchrun, if there is one: NCCL between accelerators, gloo between hosts.

    NCCL needs a GPU for each rank. If ranks share one, all tensors go through the memory of the hosts, by gloo. A rank
    that does not answer for this many seconds is an error on all others.
    """
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        return World()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    store, rank, size = next(iter(dist.rendezvous("env://")))
    store = dist.PrefixStore(join_name(dist.PrefixStore("clearformer", store), rank, size), store)
    backend, timeout = "gloo", timedelta(seconds=seconds)
    if device.type == "cuda":
        gpu = str(torch.cuda.get_device_properties(device).uuid)
        n_gpus = count_gpus(dist.PrefixStore("gpus", store), rank, size, gpu)
        backend = "cpu:gloo,cuda:nccl" if n_gpus == size else "gloo"
        if n_gpus < size and rank == 0:
            console.print(f"{size} processes share {count(n_gpus, 'GPU')}: they communicate by gloo, not by NCCL")
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
    return World(rank, size, Meeting(dist.PrefixStore("meeting", store), rank, size, seconds))


def count_gpus(store: dist.Store, rank: int, size: int, gpu: str) -> int:
    """Return the number of different GPUs of all ranks, the same on every rank. `gpu` identifies the GPU of `rank`."""
    store.set(str(rank), gpu)
    return len({store.get(str(other)) for other in range(size)})


def leave_world(world: World) -> None:
    if world.meeting is not None:
        world.meeting.end()
    if dist.is_initialized():
        dist.destroy_process_group()


def shard(
    model: nn.Module, device: torch.device, fill: Callable[[nn.Module, nn.Module], None] = lambda model, part: None
) -> None:
    """Shard the weights of every block over the ranks, then the rest of the model.

    `fill` gives a part of the model its weights, just before it is sharded (models/deferred.py): a rank holds no more
    than its shards and one part, which is a block, or all that is in none.
    Gradients are summed, not averaged, because each rank has divided by the token count of all ranks. A forward pass
    enters the model through `hidden`, `read` or `answers`, a search through `start` and `step`. The weights outside the
    blocks, embeddings and head, stay gathered until the backward pass ends.
    """
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    # Not init_device_mesh: on a machine with a GPU it replaces a group of gloo, in some versions of torch by NCCL,
    # which ranks that share a GPU cannot use.
    group = dist.group.WORLD
    assert group is not None
    mesh = DeviceMesh.from_group(group, device.type)
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    for part in [*(block for blocks in reversed(lists) for block in blocks), model]:
        fill(model, part)
        for parameter in part.parameters():
            if not parameter.is_contiguous():  # a convolution in channels-last, which FSDP2 refuses
                parameter.data = parameter.data.contiguous()
        sharded: Any = fully_shard(part, mesh=mesh, reshard_after_forward=part is not model)
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)  # gloo supports no other reduction
        if hasattr(part, "remember"):
            register_fsdp_forward_method(part, "remember")
    for name in ("hidden", "read", "answers", "start", "step"):
        if hasattr(model, name):
            register_fsdp_forward_method(model, name)


@contextmanager
def block_by_block(model: nn.Module) -> Iterator[None]:
    """Inside the context, a sharded model computes without gradients; every rank has to call it in the same way.

    As in training, a block is gathered while it computes, and embeddings and head in between as well. A model that is
    not sharded is not changed.
    """
    parts: list[Any] = [module for module in model.modules() if hasattr(module, "unshard")]
    for part in parts:  # once outside of inference mode, whose buffers could not be used in training
        part.unshard()
        part.reshard()
    try:
        yield
    finally:
        if can_leave(model):
            model.reset_iter_state()  # type: ignore[operator]
        else:
            for part in parts:
                part.reshard()


def can_leave(model: nn.Module) -> bool:
    """Whether a pass of a sharded model can be left in the middle: in torch since 2.13."""
    return hasattr(model, "reset_iter_state")


class Poll:
    """Lets the ranks of a sharded model notice a signal at the same call of a block: they exchange weights there.

    If torch cannot leave a pass in the middle, a signal is answered after the validation.
    """

    def __init__(self, world: World, period: int = 16) -> None:
        self.world, self.period, self.n, self.noticed = world, period, 0, 0

    def __call__(self, module: nn.Module, signal: int) -> int:
        """Return the signal that any rank has noted, or 0; the ranks ask each other at every 16th block."""
        if hasattr(module, "unshard") and can_leave(module):
            self.n += 1
            if self.n % self.period == 0:
                [self.noticed] = self.world.largest(signal)
        return self.noticed

"""The gradients of replicated ranks, summed over all of them.

g ← Σ_ranks g             in buckets of about 25 MB, a few at a time
"""

from collections import deque
from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from clearformer.training.distributed import World

BUCKET = 25 * 2**20  # bytes of gradients that are summed together
AT_ONCE = 3  # buckets that are being summed


def sum_gradients(parameters: Sequence[nn.Parameter], world: World) -> None:
    """Sum the gradients over all ranks, in buckets of about 25 MB. A few buckets are summed at a time.

    A gradient as large as a bucket is summed where it is; smaller ones are copied to a bucket and back, so that the
    gradients are never held twice. The sums begin after the backward pass, not inside it: until it ends, a rank whose
    memory is too small may start its step again (split.py).
    """
    if world.size == 1:
        return
    running: deque[Sum] = deque()
    for bucket in buckets([p.grad for p in parameters if p.grad is not None]):
        if len(running) == AT_ONCE:
            running.popleft().finish()
        running.append(Sum(bucket))
    while running:
        running.popleft().finish()


def buckets(grads: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Divide gradients into lists of one dtype and at most BUCKET bytes, or of one gradient, as on all other ranks."""
    for dtype in dict.fromkeys(g.dtype for g in grads):
        bucket, n_bytes = list[Tensor](), 0
        for g in grads:
            if g.dtype != dtype:
                continue
            if bucket and n_bytes + g.nbytes > BUCKET:
                yield bucket
                bucket, n_bytes = [], 0
            bucket.append(g)
            n_bytes += g.nbytes
        yield bucket


class Sum:
    """The sum of some gradients over all ranks, which begins here. `finish` waits for it."""

    def __init__(self, grads: list[Tensor]) -> None:
        self.grads = grads
        is_one = len(grads) == 1 and grads[0].is_contiguous()
        self.flat = grads[0] if is_one else torch.cat([g.flatten() for g in grads])
        self.work = dist.all_reduce(self.flat, async_op=True)

    def finish(self) -> None:
        assert self.work is not None
        self.work.wait()
        if self.flat is not self.grads[0]:
            parts = self.flat.split([g.numel() for g in self.grads])
            torch._foreach_copy_(self.grads, [part.view_as(g) for g, part in zip(self.grads, parts)])

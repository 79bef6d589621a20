"""The gradients of replicated ranks, summed over all of them while the backward pass goes on.

    g ← Σ_ranks g             in buckets of about 25 MB, from the last layer to the first, a few at a time

In the backward pass of the last part of a step, the sum of a bucket begins as soon as its gradients are complete. All
ranks begin the sums in the same order, whichever gradients come first: a bucket waits for those before it. What is
still missing at the end of the pass follows then. A gradient as large as a bucket is summed where it is; smaller ones
are copied to a bucket and back, so that the gradients are never held twice.

A rank whose memory is too small starts its step again (split.py). The sums that have begun stay valid, since a bucket
begins with the gradients of the whole step; when these are computed a second time, they are dropped one by one.

Ranks may use different parameters in a step. A rank without a gradient adds zeros; a parameter that no rank has used
keeps no gradient, as in one process. Buckets that were incomplete on any rank are the last in the next step, so that
the others need not wait for the end of the pass; which gradients a bucket has never changes.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from clearformer.errors import MachineError
from clearformer.memory import is_out_of_memory
from clearformer.training.distributed import World

BUCKET = 25 * 2**20  # bytes of gradients that are summed together
AT_ONCE = 3  # buckets that are being summed

Some = TypeVar("Some", bound=Tensor)


# Not torch's DDP: its reducer is prepared by `forward`, which steps bypass (`hidden`, `head`), and a backward pass that
# ran out of memory leaves it with sums that it can neither continue nor forget.
class GradientSums:
    """The sums of one step after the other. With one process, all of this costs nothing."""

    def __init__(self, parameters: Sequence[nn.Parameter], world: World) -> None:
        self.world = world
        self.buckets = [Bucket(some) for some in buckets(parameters[::-1])] if world.size > 1 else []
        self.order = list(self.buckets)  # in which the sums of this step begin
        self.n_begun, self.running = 0, deque[Sum]()
        self.is_last = False  # whether the part is computed that completes the gradients
        for bucket in self.buckets:
            for parameter in bucket.parameters:
                parameter.register_post_accumulate_grad_hook(partial(self.take, bucket))

    def begin_last(self) -> None:
        """Before the last part of a step: from here on, a gradient is complete as soon as it is added up."""
        self.is_last = True

    def take(self, bucket: "Bucket", parameter: Tensor) -> None:
        """Begin the sums that wait for no other gradient. The backward pass calls this after each gradient."""
        if bucket.grads is not None:  # the step has started again, and this gradient is in the sum already
            parameter.grad = None
        elif self.is_last:
            bucket.missing.discard(id(parameter))
            while self.n_begun < len(self.order) and not self.order[self.n_begun].missing:
                self.begin_next()

    def begin_next(self) -> None:
        """Begin the sum of the next bucket. If there is no memory for it, it has not begun."""
        if len(self.running) == AT_ONCE:
            self.running.popleft().finish()
        bucket = self.order[self.n_begun]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket.parameters]
        self.running.append(Sum(grads))
        bucket.grads = grads
        self.n_begun += 1

    def start_again(self) -> None:
        """Forget which gradients were complete. Sums that have begun go on."""
        self.is_last = False
        for bucket in self.order[self.n_begun :]:
            bucket.start_again()

    def finish(self) -> None:
        """After the last part: complete the sums, which then are the gradients of the parameters."""
        if not self.buckets:
            return
        unused = {id(p) for bucket in self.order[self.n_begun :] for p in bucket.parameters if p.grad is None}
        while self.n_begun < len(self.order):
            self.begin_next()
        parameters = [p for bucket in self.buckets for p in bucket.parameters]
        n_users = torch.tensor([int(id(p) not in unused) for p in parameters])
        self.running.append(Sum([n_users]))
        while self.running:
            self.running.popleft().finish()
        users = {id(p): n for p, n in zip(parameters, n_users.tolist())}  # how many ranks have used it
        for bucket in self.buckets:
            bucket.set_gradients(users)
            bucket.start_again()
        self.order = sorted(self.buckets, key=lambda bucket: bucket.is_late(users, self.world.size))
        self.n_begun, self.is_last = 0, False


class Bucket:
    """Parameters whose gradients are summed together: `missing` are not complete; `grads` are being or were summed."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = parameters
        self.start_again()

    def start_again(self) -> None:
        self.missing = {id(p) for p in self.parameters}
        self.grads: list[Tensor] | None = None

    def set_gradients(self, users: dict[int, int]) -> None:
        assert self.grads is not None
        for p, grad in zip(self.parameters, self.grads):
            p.grad = grad if users[id(p)] else None

    def is_late(self, users: dict[int, int], n_ranks: int) -> bool:
        """Whether a rank lacked one of these gradients, and could begin the sum only after its backward pass."""
        return any(users[id(p)] < n_ranks for p in self.parameters)


def buckets(tensors: Sequence[Some]) -> Iterator[list[Some]]:
    """Divide tensors into lists of one dtype and at most BUCKET bytes, or of one tensor, as on all other ranks."""
    for dtype in dict.fromkeys(t.dtype for t in tensors):
        bucket, n_bytes = list[Some](), 0
        for t in tensors:
            if t.dtype != dtype:
                continue
            if bucket and n_bytes + t.nbytes > BUCKET:
                yield bucket
                bucket, n_bytes = [], 0
            bucket.append(t)
            n_bytes += t.nbytes
        yield bucket


class Sum:
    """The sum of some tensors over all ranks, which begins here. `finish` waits for it."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self.tensors = tensors
        is_one = len(tensors) == 1 and tensors[0].is_contiguous()
        self.flat = tensors[0] if is_one else torch.cat([t.flatten() for t in tensors])
        with exchanging():
            self.work = dist.all_reduce(self.flat, async_op=True)

    def finish(self) -> None:
        assert self.work is not None
        with exchanging():
            self.work.wait()
        if self.flat is not self.tensors[0]:
            parts = self.flat.split([t.numel() for t in self.tensors])
            torch._foreach_copy_(self.tensors, [part.view_as(t) for t, part in zip(self.tensors, parts)])


@contextmanager
def exchanging() -> Iterator[None]:
    """A sum that fails for lack of memory cannot be repeated: other ranks may have it already."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise MachineError(
            "the memory is too small to sum gradients over the processes",
            "use smaller batches: halve train.tokens, and double train.accumulation",
        ) from error

"""A micro-batch that does not fit in memory is divided into parts, and its step starts again.

    Σ_i loss_i  =  Σ_parts Σ_(i in part) loss_i            i over the rows of a micro-batch

The loss is a sum, divided by the number of targets of the whole step, so that parts change nothing but rounding. What
is drawn at random on the device, such as dropout, is drawn for each part: these draws differ from the draws for the
whole micro-batch, as they do after any other change of its size.

Memory can run out in the middle of a backward pass, when some gradients have been added up already. Therefore nothing
is kept of such a step: its gradients are deleted, its random draws are seeded again, the state of texts that continue
is restored, and all its micro-batches are computed again. Only gradients that are being summed over the ranks already
are kept: they were complete (gradient_sums.py), with what was drawn for them. One rank can divide its micro-batches,
and the others need not.

The size that does not fit is remembered in the checkpoint, and no larger part is tried again. A step cannot be divided

    - if a single row does not fit,
    - if batch norm is trained, whose statistics are computed over a whole micro-batch,
    - if weights are sharded, since the ranks exchange them in the middle of a pass,
    - while it is recorded as a CUDA graph, since torch cannot undo a failed recording. Micro-batches that have been
      divided before are not recorded.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from clearformer.data.batch import Tensors
from clearformer.memory import is_out_of_memory, return_freed_memory
from clearformer.training.distributed import World
from clearformer.training.journal import console
from clearformer.training.progress import Progress
from clearformer.wording import count

Compute = Callable[[Any], Tensor]  # computes the gradient of a part, adds it up, and returns the loss, summed
NO_LIMIT = 2**62


class Splitter:
    """Adds up the losses of the micro-batches of a step, in parts that fit in memory.

    `carried` is the state that the objective keeps between steps (…, B, D), by block of rows; `start_again` deletes
    what a step has computed so far. `is_sharded` says that ranks exchange weights during a pass. `begin_last` is called
    before the last part of a step, whose backward pass completes the gradients.
    """

    def __init__(
        self,
        model: nn.Module,
        carried: dict[int, Tensor],
        start_again: Callable[[], None],
        world: World,
        is_sharded: bool = False,
        begin_last: Callable[[], None] = lambda: None,
    ) -> None:
        self.model, self.carried, self.start_again = model, carried, start_again
        self.world, self.is_sharded, self.begin_last = world, is_sharded, begin_last

    def sum(self, batches: Sequence[Tensors], compute: Compute, loss: Tensor, at: Progress) -> Tensor:
        """Add the losses of all micro-batches to `loss`, which is 0. `at.largest_part` is lowered until they fit."""
        before, limit = {n: (state, state.clone()) for n, state in self.carried.items()}, at.largest_part
        while size := self.attempt(batches, compute, loss, at.largest_part):
            # Parts are at most as large as the limit on average: one that does not fit may be twice as large.
            at.largest_part = max(1, min(size, at.largest_part or size) // 2)
            self.restore(before)
            self.start_again()
            loss.zero_()
            return_freed_memory()
            if loss.is_cuda:
                torch.cuda.empty_cache()
        if at.largest_part and not limit:  # once: the size may become smaller, as when the optimiser has its state
            self.say(batches, at)
        return loss

    def attempt(self, batches: Sequence[Tensors], compute: Compute, loss: Tensor, most: int) -> int:
        """Compute all parts. If one does not fit, return its size; otherwise 0.

        The error ends here: it holds on to the tensors of the pass that failed.
        """
        for number, batch in enumerate(batches, start=1):
            parts = [batch] if self.is_sharded else parts_of(batch, most)
            rows = state_by_rows(self.carried, batch, parts)
            for i, part in enumerate(parts):
                try:
                    if rows is not None:
                        rows.enter(i)
                    if number == len(batches) and i == len(parts) - 1:
                        self.begin_last()
                    loss += compute(part)
                except (RuntimeError, MemoryError) as error:
                    if not is_out_of_memory(error) or not self.can_divide(part):
                        raise
                    return size_of(part)
            if rows is not None:
                rows.join()
        return 0

    def can_divide(self, part: Tensors) -> bool:
        is_normed = any(isinstance(module, _BatchNorm) and module.training for module in self.model.modules())
        is_recorded = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
        return isinstance(part, Tensors) and len(part) > 1 and not (is_normed or is_recorded or self.is_sharded)

    def agree(self, at: Progress) -> None:
        """Take the smallest limit of all ranks. The first rank, which alone prints, says if it had none itself."""
        limit, at.largest_part = at.largest_part, smallest(self.world, at.largest_part)
        if at.largest_part and not limit:
            console.print(
                f"step {at.step:,}: a micro-batch does not fit in the memory of another process; from now on, all "
                "processes divide micro-batches of this size into parts, with the same sum"
            )

    def restore(self, before: dict[int, tuple[Tensor, Tensor]]) -> None:
        """Restore the carried state, in the tensors that recorded steps read."""
        self.carried.clear()
        for n, (state, copy) in before.items():
            self.carried[n] = state.copy_(copy)

    def say(self, batches: Sequence[Tensors], at: Progress) -> None:
        largest = max(batches, key=size_of)
        n_rows = max(len(part) for part in parts_of(largest, at.largest_part))
        who = f", process {self.world.rank}" if self.world.size > 1 else ""
        console.print(
            f"step {at.step:,}{who}: a micro-batch of {count(len(largest), 'row')} does not fit in memory; from now "
            f"on, micro-batches of this size are divided into parts of {count(n_rows, 'row')} at most, "
            "with the same sum"
        )


class StateByRows:
    """The state of a block of rows, which each part continues with its own rows."""

    def __init__(self, carried: dict[int, Tensor], block: int, sizes: list[int]) -> None:
        self.carried, self.block, self.after = carried, block, list[Tensor]()
        self.whole = carried.get(block)
        self.before = None if self.whole is None else self.whole.split(sizes, -2)

    def enter(self, part: int) -> None:
        """Set the state of a part, and keep the state that the part before has left."""
        self.leave()
        if self.before is not None:
            self.carried[self.block] = self.before[part].clone()

    def leave(self) -> None:
        state = self.carried.pop(self.block, None)
        if state is not None and state is not self.whole:
            self.after.append(state)

    def join(self) -> None:
        """Set the state of all rows after the last part, where a recorded step finds it."""
        self.leave()
        state = torch.cat(self.after, -2)
        self.carried[self.block] = state if self.whole is None else self.whole.copy_(state)


def state_by_rows(carried: dict[int, Tensor], batch: Tensors, parts: Sequence[Tensors]) -> StateByRows | None:
    """Return the state of a batch that is divided, if it continues the batch before."""
    if len(parts) == 1 or getattr(batch, "continues", None) is None:
        return None
    return StateByRows(carried, getattr(batch, "block", 0), [len(part) for part in parts])


def parts_of(batch: Tensors, most: int) -> Sequence[Tensors]:
    """Divide a micro-batch into parts of at most `most` numbers on average, or into rows; 0 is no limit."""
    return batch.split(-(-size_of(batch) // most)) if most and size_of(batch) > most else [batch]


def are_divided(batches: Sequence[Tensors], most: int) -> bool:
    return bool(most) and any(size_of(batch) > most for batch in batches)


def size_of(batch: Tensors) -> int:
    """The number of numbers in a batch, which its memory grows with."""
    return sum(value.numel() for value in vars(batch).values() if isinstance(value, Tensor))


def smallest(world: World, largest_part: int) -> int:
    """The smallest limit of all ranks; 0 is no limit."""
    [least] = world.largest(-(largest_part or NO_LIMIT))
    return 0 if least == -NO_LIMIT else -least

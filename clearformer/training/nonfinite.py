"""What happens to a step whose loss or gradient is not a finite number, as train.on_nonfinite says.

    stop      training ends; the checkpoints that were saved before are intact
    skip      the step changes nothing, and training goes on with the next batch
    rewind    training goes back to the last checkpoint, and leaves out the batch of the step

Such a step is noticed on the device, in tensors, so that recorded steps need not wait for the host. The host reads
these tensors when something is due anyway: a log record, a validation, a checkpoint. With `skip`, optimisers with a
fused kernel leave out their update on the device (`found_inf`); others wait for the host at each step, which only
costs time on a GPU.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from clearformer.wording import count

OnNonfinite = Literal["stop", "skip", "rewind"]
MOST = 10  # steps in a row that are skipped, or batches of a run that are left out, before training stops
SKIPS = "found_inf"  # the attribute of torch's fused optimisers by which a step is left out on the device
NUMBER, FIRST, COUNT, ROW, TOKENS = range(5)  # this step; of bad steps: the first, how many, in a row, their tokens

Place = tuple[int, int]  # epoch, and micro-batches of the epoch up to the end of the step


class BadSteps(NamedTuple):
    """The steps since the last look whose loss or gradient was not finite."""

    first: int
    place: Place | None
    """Where the batch of the first is, unless it was trained on before the run was resumed."""
    n_steps: int
    row: int
    """How many of them were the last steps, one after the other."""
    tokens: int

    def batch(self, group: int) -> str:
        """Name the batch of the first step; a step has `group` micro-batches."""
        return "" if self.place is None else f", batch {self.place[1] // group:,} of epoch {self.place[0] + 1:,}"

    def describe(self, group: int, action: OnNonfinite, step: int) -> str:
        """Say what was done about them; `step` is where the run goes on."""
        skipped, back = f"{count(self.n_steps, 'step')} skipped", f"back at step {step:,}, without this batch"
        done = back if action == "rewind" else skipped
        return f"step {self.first:,}{self.batch(group)}: the training loss or its gradient is not finite; {done}"


class Guard:
    """Notices bad steps. `statistics` are buffers that a forward pass changes, and a skipped step must not."""

    def __init__(self, how: OnNonfinite, device: torch.device, statistics: Sequence[Tensor] = ()) -> None:
        self.how, self.statistics = how, list(statistics)
        self.counts = torch.zeros(5, dtype=torch.int64, device=device)
        self.places: dict[int, Place] = {}

    def begin(self, step: int, place: Place) -> None:
        """Begin a step on the host: its number, and where its batch is."""
        self.places[step] = place
        self.counts[NUMBER].fill_(step)

    def keep(self) -> list[Tensor]:
        """Return copies of what a skipped step restores."""
        return [buffer.clone() for buffer in self.statistics] if self.how == "skip" else []

    @torch.no_grad()
    def look(self, loss: Tensor, norm: Tensor, n_tokens: int | Tensor) -> Tensor:
        """Return whether a step is good, on the device, and count it if it is bad."""
        is_good = (loss + norm).isfinite()
        bad = (~is_good).long()
        counts = self.counts
        counts[FIRST].copy_(torch.where((bad > 0) & (counts[FIRST] == 0), counts[NUMBER], counts[FIRST]))
        counts[COUNT] += bad
        counts[ROW].copy_((counts[ROW] + 1) * bad)
        counts[TOKENS] += (bad * n_tokens).long()
        return is_good

    def update(self, optimizer: Optimizer, is_good: Tensor) -> None:
        """Call the optimiser; with `skip`, only if the step is good."""
        if self.how != "skip":
            optimizer.step()
        elif all(group.get("fused") for group in optimizer.param_groups):
            for name, value in ((SKIPS, (~is_good).float()), ("grad_scale", None)):
                setattr(optimizer, name, value)
            optimizer.step()
        elif is_good:
            optimizer.step()

    @torch.no_grad()
    def restore(self, is_good: Tensor, kept: Sequence[Tensor], carried: Sequence[Tensor]) -> None:
        """After a skipped step, restore the statistics, and forget the state of texts that continue."""
        if self.how == "skip":
            for buffer, before in zip(self.statistics, kept):
                buffer.copy_(torch.where(is_good, buffer, before))
            for state in carried:
                state.copy_(torch.where(is_good, state, torch.zeros_like(state)))

    def action(self, bad: BadSteps, n_left_out: int) -> OnNonfinite:
        """Return what to do about bad steps. A run in which they do not end is stopped."""
        is_over = bad.row >= MOST if self.how == "skip" else bad.place is None or n_left_out >= MOST
        return "stop" if is_over else self.how

    def read(self) -> BadSteps | None:
        """Return the bad steps since the last call, or None. Waits for the device."""
        _, first, count, row, tokens = self.counts.tolist()
        places, self.places = self.places, {}
        if not count:
            return None
        in_a_row = self.counts[ROW].clone()
        self.counts.zero_()
        self.counts[ROW].copy_(in_a_row)
        return BadSteps(first, places.get(first), count, row, tokens)

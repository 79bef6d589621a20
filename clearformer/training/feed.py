"""Batches for the loop, built in a background thread while the device computes.

Split    what a task gives: how an epoch is cut into micro-batches, and how one of them is built
Steps    the micro-batches of each rank and step, with the count that their loss is divided by
feed     one step after another, a few built ahead
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import islice
from typing import Any, Protocol

import torch

from clearformer.data.batch import Tensors
from clearformer.training.distributed import World

AHEAD = 3  # steps built before they are asked for

Step = tuple[Sequence[Tensors], int]  # this rank's micro-batches, and the number of target tokens of all ranks together


class Split(Protocol):
    """Training data of one split, cut into micro-batches. `rows` describes a micro-batch: row numbers or the like."""

    is_drawn: bool
    """Whether the number of targets is known only once a batch is drawn, as in masking. Then every rank draws all
    micro-batches of a step, and `count` is never called."""

    def steps(self, epoch: int, group: int) -> Sequence[Sequence[Any]]:
        """The rows of each micro-batch of an epoch, in groups of `group`: one optimiser step each."""

    def batch(self, rows: Any, key: tuple[int, int]) -> Tensors:
        """One micro-batch. `key` = (epoch, its number in it) seeds whatever is drawn, beside the split's own seed."""

    def count(self, rows: Any) -> int:
        """Targets in one micro-batch."""


class StepSource(Protocol):
    """Where batches come from: each epoch is cut into steps of `group` micro-batches, those of all ranks together."""

    group: int

    def count(self, epoch: int) -> int: ...
    def load(self, epoch: int, position: int, world: World) -> Step: ...


class Steps:
    """A split as the loop sees it: steps of `group` = ranks · accumulation micro-batches. Any split, any task."""

    def __init__(self, split: Split, group: int) -> None:
        self.split, self.group = split, group
        # Two epochs: the batches built ahead may be of the next one already.
        self.plan = lru_cache(maxsize=2)(lambda epoch: split.steps(epoch, group))

    def count(self, epoch: int) -> int:
        """Steps in an epoch."""
        return len(self.plan(epoch))

    def load(self, epoch: int, position: int, world: World) -> Step:
        """This rank's micro-batches of one step, and the targets of all ranks, at least 1: a loss is divided by it."""
        split, first = self.split, position * self.group
        numbered = [(rows, (epoch, first + i)) for i, rows in enumerate(self.plan(epoch)[position])]
        if split.is_drawn:
            drawn = [split.batch(rows, key) for rows, key in numbered]
            return world.share(drawn), max(1, sum(batch.n_tokens for batch in drawn))
        count = sum(split.count(rows) for rows, _ in numbered)
        return [split.batch(rows, key) for rows, key in world.share(numbered)], max(1, count)


class Place(Protocol):
    """How far the training has come. `position` counts micro-batches: it means the same to any number of ranks."""

    epoch: int
    position: int


def feed(steps: StepSource, at: Place, n_steps: int, world: World, device: torch.device) -> Iterator[Step]:
    """The next n steps. `at` moves on as they are handed out, not as they are built: it is what was trained on."""

    def build(epoch: int, position: int) -> Step:
        batches, count = steps.load(epoch, position, world)
        return [batch.pin_memory() for batch in batches] if device.type == "cuda" else batches, count

    places = islice(places_from(steps, at.epoch, at.position // steps.group), max(0, n_steps))
    with ThreadPoolExecutor(1) as pool:
        queue = deque((place, pool.submit(build, *place)) for place in islice(places, AHEAD))
        while queue:
            (at.epoch, position), future = queue.popleft()
            at.position = (position + 1) * steps.group
            queue.extend((place, pool.submit(build, *place)) for place in islice(places, 1))
            batches, count = future.result()
            yield [batch.to(device, non_blocking=True) for batch in batches], count


def places_from(steps: StepSource, epoch: int, position: int) -> Iterator[tuple[int, int]]:
    """Every (epoch, step of it) from here on."""
    while True:
        for step in range(position, steps.count(epoch)):
            yield epoch, step
        epoch, position = epoch + 1, 0

"""Batches for the loop, built in a background thread while the device computes.

Split    provided by a task: divides an epoch into micro-batches, and builds them
Steps    returns the micro-batches of each rank and step, and the token count that their loss is divided by
feed     an iterator over steps, with a few built ahead
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import islice
from typing import Any, Protocol

import torch

from clearformer.data.batch import Tensors
from clearformer.errors import ConfigError
from clearformer.training.distributed import World
from clearformer.wording import count

AHEAD = 3  # steps built in advance

Step = tuple[Sequence[Tensors], int]  # the micro-batches of this rank, and the number of target tokens of all ranks


class Split(Protocol):
    """The data of one split in micro-batches. `rows` identifies a micro-batch, for example by row indices."""

    is_drawn: bool
    """Whether the number of targets is only known once a batch is built, as in masking. If so, every rank builds all
    micro-batches of a step, and `count` is never called."""

    def steps(self, epoch: int, group: int) -> Sequence[Sequence[Any]]:
        """The rows of each micro-batch of an epoch, grouped into optimiser steps of `group` micro-batches."""

    def batch(self, rows: Any, key: tuple[int, int]) -> Tensors:
        """Build one micro-batch. `key` = (epoch, index in the epoch) seeds its draws, with the seed of the split."""

    def count(self, rows: Any) -> int:
        """The number of targets in one micro-batch."""


class StepSource(Protocol):
    """A source of batches. Each epoch is divided into steps of `group` micro-batches, counted over all ranks."""

    group: int

    def count(self, epoch: int) -> int: ...
    def load(self, epoch: int, position: int, world: World) -> Step: ...


class Steps:
    """A split of any task, in steps of `group` = ranks · accumulation micro-batches."""

    def __init__(self, split: Split, group: int) -> None:
        self.split, self.group = split, group
        # Two epochs: batches built in advance may belong to the next one.
        self.plan = lru_cache(maxsize=2)(lambda epoch: split.steps(epoch, group))

    def count(self, epoch: int) -> int:
        """The number of steps in an epoch."""
        return len(self.plan(epoch))

    def load(self, epoch: int, position: int, world: World) -> Step:
        """Returns the micro-batches of this rank in a step, and the target count of all ranks, which is at least 1."""
        split, first = self.split, position * self.group
        numbered = [(rows, (epoch, first + i)) for i, rows in enumerate(self.plan(epoch)[position])]
        if split.is_drawn:
            drawn = [split.batch(rows, key) for rows, key in numbered]
            return world.select(drawn), max(1, sum(batch.n_tokens for batch in drawn))
        n_targets = sum(split.count(rows) for rows, _ in numbered)
        return [split.batch(rows, key) for rows, key in world.select(numbered)], max(1, n_targets)


class WholeEpochs(Steps):
    """A split in steps of one epoch each: every step reads all examples. Ranks share the micro-batches of a step."""

    def __init__(self, split: Split) -> None:
        super().__init__(split, group=1)
        self.plan = lru_cache(maxsize=2)(lambda epoch: [[rows for [rows] in split.steps(epoch, 1)]])

    def load(self, epoch: int, position: int, world: World) -> Step:
        n = len(self.plan(epoch)[0])
        if n < world.size:
            raise ConfigError(
                f"an epoch has {count(n, 'micro-batch', 'micro-batches')} for {world.size} processes",
                "lower train.tokens, or use fewer processes",
            )
        return super().load(epoch, position, world)


class Place(Protocol):
    """The position of a run in its data. `position` counts micro-batches, independently of the number of ranks."""

    epoch: int
    position: int
    left_out: list[list[int]]
    """Epoch and position of the batches that are not trained on."""


def feed(steps: StepSource, at: Place, n_steps: int, world: World, device: torch.device) -> Iterator[Step]:
    """The next n steps. `at` advances when a step is yielded, not when it is built: it records the data trained on.

    If the caller sets `at` back, the steps from there on follow.
    """

    def build(epoch: int, position: int) -> Step:
        batches, count = steps.load(epoch, position, world)
        return [batch.pin_memory() for batch in batches] if device.type == "cuda" else batches, count

    def next_places() -> Iterator[tuple[int, int]]:
        for epoch, position in places_from(steps, at.epoch, at.position // steps.group):
            if [epoch, (position + 1) * steps.group] not in at.left_out:
                yield epoch, position

    places: Iterator[tuple[int, int]] = islice(next_places(), max(0, n_steps))
    with ThreadPoolExecutor(1) as pool:
        queue = deque((place, pool.submit(build, *place)) for place in islice(places, AHEAD))
        while queue:
            (epoch, position), future = queue.popleft()
            at.epoch, at.position = reached = epoch, (position + 1) * steps.group
            queue.extend((place, pool.submit(build, *place)) for place in islice(places, 1))
            batches, count = future.result()
            yield [batch.to(device, non_blocking=True) for batch in batches], count
            if (at.epoch, at.position) != reached:
                places = next_places()
                queue = deque((place, pool.submit(build, *place)) for place in islice(places, AHEAD))


def places_from(steps: StepSource, epoch: int, position: int) -> Iterator[tuple[int, int]]:
    """Yield (epoch, step in the epoch) from this position on, without end."""
    while True:
        for step in range(position, steps.count(epoch)):
            yield epoch, step
        epoch, position = epoch + 1, 0

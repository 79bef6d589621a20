"""Batches for the loop, built in a background thread while the device computes."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Protocol

import torch

from clearformer.data.batch import Tensors
from clearformer.training.distributed import World

AHEAD = 3  # steps built before they are asked for

Step = tuple[Sequence[Tensors], int]  # this rank's micro-batches, and the number of target tokens of all ranks together


class Steps(Protocol):
    """Where batches come from: each epoch is cut into steps of `group` micro-batches, those of all ranks together."""

    group: int

    def count(self, epoch: int) -> int: ...
    def load(self, epoch: int, position: int, world: World) -> Step: ...


class Place(Protocol):
    """How far the training has come. `position` counts micro-batches: it means the same to any number of ranks."""

    epoch: int
    position: int


def feed(steps: Steps, at: Place, n_steps: int, world: World, device: torch.device) -> Iterator[Step]:
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


def places_from(steps: Steps, epoch: int, position: int) -> Iterator[tuple[int, int]]:
    """Every (epoch, step of it) from here on."""
    while True:
        for step in range(position, steps.count(epoch)):
            yield epoch, step
        epoch, position = epoch + 1, 0

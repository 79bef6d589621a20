"""The estimate of a training: memory of each process by part, seconds per step, hours, and whether it fits."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any

import torch

from clearformer.memory import keep_freed_memory, machine_bytes
from clearformer.planning.batches import Batches, all_steps, shuffled_steps
from clearformer.planning.calibration import stopwatch
from clearformer.planning.clocks import Clock, Roofline, Stopwatch
from clearformer.planning.devices import HERE, Device, find_device
from clearformer.planning.heap import Glibc, Heap, peak_of, tell
from clearformer.planning.ledger import ACTIVATIONS
from clearformer.planning.rehearsal import BLOCKS, OUTER, UPDATE, Rehearsal, Rehearsed, rehearse
from clearformer.tables import Tables
from clearformer.training.gradient_sums import AT_ONCE, BUCKET
from clearformer.training.precision import pick_device

REHEARSALS, PATIENCE = 3, 20.0  # of the memory on a CPU; seconds after which no other is begun
HOLES = 1.25  # of a training, for each of a rehearsal: about what benchmarks/plan_accuracy.py measures
SHARDED = ("weights", "average", "optimiser", "gradients")


@dataclass(frozen=True)
class Target:
    """Where a training is to run: a kind of device, how many of them, and the clock for it."""

    device: Device
    n_devices: int
    clock: Clock

    @property
    def torch_device(self) -> torch.device:
        return torch.device("cuda" if self.device.is_gpu else "cpu")

    def beside(self, mb: float) -> "Target":
        """The same device, of whose memory a process on the CPU needs `mb` more."""
        device = self.device
        return self if device.is_gpu else replace(self, device=replace(device, process_mb=device.process_mb + mb))


def find_target(name: str, n_devices: int) -> Target:
    """Return the device of this name, of devices.toml or of this machine."""
    if name in HERE:
        watch = stopwatch(pick_device(name).type)
        return Target(watch.roofline.device, n_devices, watch)
    device = find_device(name)
    return Target(device, n_devices, Roofline(device))


@dataclass(frozen=True)
class Estimate:
    """Memory in bytes, of one process. `parts` add up to `peak`."""

    recipe: Tables
    target: Target
    n_parameters: int
    n_trainable: int
    parts: dict[str, int]
    seconds_per_step: float
    flops_per_step: int

    @property
    def peak(self) -> int:
        return sum(self.parts.values())

    @property
    def fits(self) -> bool:
        return self.peak <= self.target.device.memory_gb * 1e9

    @property
    def hours(self) -> float:
        seconds = self.recipe.train.steps * self.seconds_per_step
        return min(seconds, self.recipe.train.max_seconds or inf) / 3600

    def as_json(self) -> dict[str, Any]:
        device, train = self.target.device, self.recipe.train
        return {
            "device": device.title,
            "devices": self.target.n_devices,
            "parameters": self.n_parameters,
            "trainable": self.n_trainable,
            "memory_mb": {name: round(n / 1e6, 1) for name, n in self.parts.items()},
            "peak_mb": round(self.peak / 1e6, 1),
            "device_mb": round(device.memory_gb * 1e3),
            "fits": self.fits,
            "seconds_per_step": float(f"{self.seconds_per_step:.4g}"),
            "tflop_per_step": float(f"{self.flops_per_step / 1e12:.4g}"),
            "steps": train.steps,
            "hours": float(f"{self.hours:.4g}"),
        }


def estimate(recipe: Tables, batches: Batches, target: Target) -> Estimate:
    """Rehearse the recipe on these batches, and add up memory and time.

    The time of the step of median size is measured, or computed; other sizes are scaled by the work that they contain.
    """
    mixed = recipe
    if target.device.is_gpu and recipe.train.precision == "auto":
        mixed = recipe.with_tables(train=recipe.train.changed(precision="bfloat16"))
    task = batches.task_for(mixed)
    done = rehearse(mixed, all_steps(batches), task, fused=target.device.is_gpu)
    steps = done.steps[len(batches.largest) :]
    rough = Roofline(target.device)
    works = [rough.step(step) for step in steps]
    middle = sorted(range(len(steps)), key=works.__getitem__)[len(steps) // 2]
    seconds = target.clock.step(steps[middle]) * sum(works) / len(works) / works[middle]
    again = partial(rehearse, mixed, shuffled_steps(batches), task)
    holes = None if target.device.is_gpu else held(done, again, target.clock) - largest_of(done).peak
    if isinstance(target.clock, Stopwatch):
        target.clock.save()
    parts = memory_parts(done, recipe, target, holes)
    seconds += exchange_seconds(done, recipe, target)
    flops = sum(step.flops for step in steps) // len(steps)
    return Estimate(recipe, target, done.n_parameters, done.n_trainable, parts, seconds, flops)


def held(done: Rehearsal, rehearse_again: Callable[..., object], clock: Clock) -> int:
    """Return the most bytes that the allocator of a CPU holds, with what kernels take for themselves.

    The steps are rehearsed again, and glibc is asked for every block. The holes of two rehearsals differ, as do those
    of two trainings: the result is the most of a few, and HOLES for small objects that only a training has. A training
    that is larger than this machine, or another C library, has a model of it.
    """
    largest, most, begun = largest_of(done), 0, time.monotonic()
    scratch = {call.key: clock.scratch(call) for step in (largest, done.steps[0]) for call, _ in step.calls}
    threshold = keep_freed_memory()
    if Glibc.is_here() and largest.peak < machine_bytes():
        with suppress(MemoryError):
            for _ in range(REHEARSALS):
                with Glibc(threshold) as glibc:
                    rehearse_again(watch=lambda record: tell(glibc, record, lambda call: scratch.get(call.key, 0)))
                most = max(most, glibc.peak)
                if time.monotonic() - begun > PATIENCE:
                    break
    if not most:
        most = peak_of(done.records, Heap(threshold), lambda call: scratch.get(call.key, 0))
    return largest.peak + round(HOLES * max(0, most - largest.peak))


def largest_of(done: Rehearsal) -> Rehearsed:
    return max(done.steps, key=lambda step: step.peak)


def memory_parts(done: Rehearsal, recipe: Tables, target: Target, holes: int | None = None) -> dict[str, int]:
    """The bytes of each part at the peak of the largest step, of one process.

    `holes` are the bytes that the allocator holds beside them; by default, 5 % of them.
    """
    largest = largest_of(done)
    parts = dict(largest.parts)
    if recipe.train.parallel == "shard" and target.n_devices > 1:
        candidates = (sharded_parts(done, step, target.n_devices) for step in done.steps)
        parts = max(candidates, key=lambda parts: sum(parts.values()))
    ratio = sum(parts.values()) / largest.peak
    if recipe.train.parallel == "replicate" and target.n_devices > 1:
        parts["exchange"] = min(4 * done.n_trainable, AT_ONCE * BUCKET)
    process = round(target.device.process_mb * 1e6)
    holes = round(0.05 * largest.peak) if holes is None else holes
    return {**parts, "allocator": round(ratio * holes), "process": process}


def sharded_parts(done: Rehearsal, step: Rehearsed, n: int) -> dict[str, int]:
    """The bytes of each part of a sharded model, on one of n devices, in the phase of the step with the largest peak.

    weights, gradients, optimiser     a shard of each
    gathered, in all passes           weights outside the blocks, and their gradients; two blocks: in use, and next
    in the backward pass of blocks    also the gradients of a block, and those of another that are being summed
    in the optimiser                  nothing is gathered, and its temporary copies are of shards
    """
    candidates = []
    for phase, peak in step.peaks.items():
        is_update = phase == UPDATE
        cut = {*SHARDED, *((OUTER, ACTIVATIONS) if is_update else ())}
        parts = {name: n_bytes // n if name in cut else n_bytes for name, n_bytes in peak.items()}
        outer, blocks = parts.pop(OUTER), 0 if is_update else 2 * done.largest_block
        if phase == BLOCKS:
            blocks += 2 * done.largest_block - done.largest_block // n  # whose shard is among the gradients
        parts["gradients"] += outer if is_update else 0
        parts["gathered blocks"] = blocks
        parts["gathered embeddings and head"] = 0 if is_update else done.outer + outer
        candidates.append(parts)
    return max(candidates, key=lambda parts: sum(parts.values()))


def exchange_seconds(done: Rehearsal, recipe: Tables, target: Target) -> float:
    """Seconds per step to sum gradients, or to gather and scatter sharded weights, in a ring.

    An upper limit: both go on while the backward pass computes, for as long as it has work.
    """
    n = target.n_devices
    if n == 1 or not target.device.link_gb_per_s:
        return 0.0
    n_bytes = 4 * (3 * done.n_parameters if recipe.train.parallel == "shard" else 2 * done.n_trainable)
    return n_bytes * (n - 1) / n / (target.device.link_gb_per_s * 1e9)

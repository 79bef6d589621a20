"""The training loop, readable whole.

    for each step:   batches -> loss sum / global count -> backward -> clip -> schedule -> optimiser
    now and then:    log, validate (keep the best), save (resume exactly)

Step k's randomness is seeded by (seed, k, rank) and its batches by (seed, epoch, position), so that a resumed run
needs to remember only counters: it continues as if it had never stopped, bit for bit.
"""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim import Optimizer

from clearformer.checkpoint import RunFolder, load_tensors, load_weights, save_tensors, weights_of
from clearformer.config import Config
from clearformer.data.batch import Batch
from clearformer.errors import CheckpointError
from clearformer.training.average import Average
from clearformer.training.distributed import World, sum_gradients
from clearformer.training.journal import Journal
from clearformer.training.optim import set_rate
from clearformer.training.precision import Precision, autocast
from clearformer.training.schedules import ScheduleConfig

Objective = Callable[[nn.Module, Batch], Any]  # -> (total: Tensor, count: int)
Validate = Callable[[nn.Module, int], dict[str, float]]


class TrainConfig(Config):
    """[train]"""

    steps: int = Field(8000, ge=1, description="optimiser steps")
    tokens: int = Field(4096, ge=1, description="a side of one micro-batch, padding included")
    accumulation: int = Field(1, ge=1, description="micro-batches a rank and step")
    clip: float = Field(1.0, ge=0, description="largest norm of the gradient; 0 is no clipping")
    ema: float = Field(0.999, ge=0, lt=1, description="decay of the averaged weights that are used; 0 uses the last")
    seed: int = 0
    log_every: int = Field(50, ge=1, description="steps")
    validate_every: int = Field(500, ge=1, description="steps")
    save_every: int = Field(500, ge=1, description="steps")
    patience: int = Field(0, ge=0, description="validations without a better one before stopping; 0 never stops early")
    metric: str = Field("bleu", description="what decides which weights are best: a name among the validation scores")
    precision: Precision = "auto"
    compile: Literal["auto", "on", "off"] = "auto"
    deterministic: bool = Field(False, description="the same bits each time on CUDA too, a little slower")
    parallel: Literal["replicate", "shard"] = "replicate"
    tensorboard: bool = False


class Steps(Protocol):
    """Where batches come from: for each optimiser step of an epoch, the micro-batches of all ranks."""

    def count(self, epoch: int) -> int: ...
    def load(self, epoch: int, position: int, world: World) -> tuple[list[Batch], int]:
        """This rank's micro-batches, and the number of target tokens of all ranks together."""


@dataclass
class Progress:
    """Where a training stands: all that must be remembered besides tensors."""

    step: int = 0
    epoch: int = 0
    position: int = 0  # steps taken of this epoch
    tokens: int = 0  # target tokens seen
    seconds: float = 0.0  # spent training, validation and saving included
    best: float | None = None
    best_step: int = 0
    stale: int = 0  # validations since the best
    scores: dict[str, float] = field(default_factory=dict)


class Interrupted(Exception):
    """Ctrl-C, after everything was saved."""


class Trainer:
    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        optimizer: Optimizer,
        schedule: ScheduleConfig,
        config: TrainConfig,
        run: RunFolder,
        device: torch.device,
        world: World,
        validate: Validate | None = None,
        lr: float = 1e-3,
    ) -> None:
        self.model, self.objective, self.optimizer, self.schedule = model, objective, optimizer, schedule
        self.config, self.run, self.device, self.world, self.validate, self.lr = (
            config,
            run,
            device,
            world,
            validate,
            lr,
        )
        self.average = Average(model, config.ema) if config.ema else None
        self.progress = Progress()
        self.parameters = [p for p in model.parameters() if p.requires_grad]

    def train(self, steps: Steps) -> Progress:
        """From where `progress` stands to the last step, or until nothing gets better, or Ctrl-C."""
        at, config = self.progress, self.config
        journal = Journal(self.run.metrics, config.steps, at.step, not self.world.is_first, config.tensorboard)
        meter = Meter(self.device)
        clock = time.monotonic() - at.seconds
        self.model.train()
        try:
            with ctrl_c() as interrupted:
                for batches, count in prefetch(steps, at, config.steps, self.world, self.device):
                    loss, norm = self.step(batches, count)
                    at.seconds = time.monotonic() - clock
                    meter.add(loss, norm, count)
                    is_last = at.step == config.steps
                    is_asked = self.any_rank(bool(interrupted)) if self.world.size > 1 else bool(interrupted)
                    due = [
                        at.step % every == 0 for every in (config.log_every, config.validate_every, config.save_every)
                    ]
                    if any(due) or is_last or is_asked:
                        values = {**meter.read(self.world), "lr": self.rate(at.step), "epoch": at.epoch}
                        journal.log(at.step, "train", values)
                        journal.progress(at.step, describe(values, at))
                    if due[1] or is_last:
                        self.judge(journal)
                    if due[2] or is_last or is_asked or self.is_stale:
                        journal.sync()
                        self.save()
                    if is_asked and not is_last:
                        raise Interrupted
                    if self.is_stale:
                        journal.say(f"stopped early: {at.stale} validations without a better {config.metric}")
                        break
        finally:
            journal.close()
        return at

    def step(self, batches: list[Batch], count: int) -> tuple[Tensor, Tensor]:
        """One update from this rank's micro-batches; `count` is the tokens of all of them, on all ranks."""
        at = self.progress
        at.step += 1
        at.tokens += count
        torch.manual_seed((self.config.seed * 1_000_003 + at.step) * 1009 + self.world.rank)
        loss = torch.zeros((), device=self.device)
        for batch in batches:
            with autocast(self.device, self.config.precision):
                total, _ = self.objective(self.model, batch)
            (total / count).backward()
            loss += total.detach()
        if self.world.size > 1 and self.config.parallel == "replicate":
            sum_gradients(self.parameters)
        norm = nn.utils.clip_grad_norm_(self.parameters, self.config.clip or float("inf"))
        set_rate(self.optimizer, self.rate(at.step))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update(self.model, at.step)
        return loss, norm

    def rate(self, step: int) -> float:
        return self.lr * self.schedule.factor(step, self.config.steps)

    def judge(self, journal: Journal) -> None:
        """Validate with the weights that would be used, and keep them if they are the best so far."""
        at, metric = self.progress, self.config.metric
        with self.average.swapped_in(self.model) if self.average is not None else nullcontext():
            if self.validate is not None:
                self.model.eval()
                scores = self.validate(self.model, at.step)
                self.model.train()
                journal.log(at.step, "valid", scores)
                value = -scores[metric] if metric == "loss" else scores[metric]
                journal.say(f"step {at.step:>6}  " + "  ".join(f"{k} {v:.4g}" for k, v in scores.items()))
                if at.best is not None and value <= at.best:
                    at.stale += 1
                    return
                at.best, at.best_step, at.stale, at.scores = value, at.step, 0, scores
            if self.world.is_first:
                save_tensors(self.run.model, weights_of(self.model), {"step": at.step, "scores": at.scores})

    @property
    def is_stale(self) -> bool:
        return bool(self.config.patience) and self.progress.stale >= self.config.patience

    def any_rank(self, flag: bool) -> bool:
        return bool(self.world.sum(torch.tensor(float(flag), device=self.device)) > 0)

    def save(self) -> None:
        """Everything needed to go on, in one file, which replaces the previous one in one move."""
        tensors, groups = flatten_optimizer(self.optimizer, self.model)
        tensors |= {f"model.{name}": tensor for name, tensor in weights_of(self.model).items()}
        if self.average is not None:
            tensors |= {f"average.{name}": tensor for name, tensor in self.average.weights.items()}
        if self.world.is_first:
            save_tensors(self.run.last, tensors, {"progress": asdict(self.progress), "groups": groups})
        self.world.barrier()

    def resume(self) -> None:
        """Stand where `save` stood."""
        tensors, facts = load_tensors(self.run.last)
        where = str(self.run.last)
        if "progress" not in facts:
            raise CheckpointError(f"{where} holds no training state", "resume from the run folder of a training")
        load_weights(self.model, under("model.", tensors), where)
        unflatten_optimizer(self.optimizer, self.model, under("optimizer.", tensors), facts["groups"])
        if self.average is not None:
            for name, tensor in under("average.", tensors).items():
                self.average.weights[name].copy_(tensor)
        self.progress = Progress(**facts["progress"])


def under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def flatten_optimizer(optimizer: Optimizer, model: nn.Module) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """The optimiser's tensors by parameter name, optimizer.<slot>.<parameter>, and its settings as plain values."""
    names = {id(p): name for name, p in model.named_parameters()}
    tensors = {
        f"optimizer.{slot}.{names[id(p)]}": torch.as_tensor(value)
        for p, slots in optimizer.state.items()
        for slot, value in slots.items()
        if value is not None
    }
    groups = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.state_dict()["param_groups"]]
    return tensors, groups


def unflatten_optimizer(
    optimizer: Optimizer, model: nn.Module, tensors: dict[str, Tensor], groups: list[dict[str, Any]]
) -> None:
    """The inverse of `flatten_optimizer`; torch's own loading puts each tensor where its kernel wants it."""
    index = {}
    ordered = [p for group in optimizer.param_groups for p in group["params"]]
    names = {id(p): name for name, p in model.named_parameters()}
    for i, p in enumerate(ordered):
        index[names[id(p)]] = i
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        slot, name = key.split(".", 1)
        state.setdefault(index[name], {})[slot] = tensor
    skeleton = optimizer.state_dict()["param_groups"]
    merged = [{**own, **saved, "params": own["params"]} for own, saved in zip(skeleton, groups)]
    optimizer.load_state_dict({"state": state, "param_groups": merged})


class Meter:
    """Loss, gradient norm and speed since the last reading; the device is asked only when read."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.reset()

    def reset(self) -> None:
        self.loss = torch.zeros((), device=self.device)
        self.norm = torch.zeros((), device=self.device)
        self.tokens, self.steps, self.since = 0, 0, time.monotonic()

    def add(self, loss: Tensor, norm: Tensor, tokens: int) -> None:
        self.loss += loss
        self.norm += norm
        self.tokens += tokens
        self.steps += 1

    def read(self, world: World) -> dict[str, float]:
        loss = world.sum(self.loss).item() / self.tokens
        norm = self.norm.item() / self.steps
        values = {"loss": loss, "grad_norm": norm, "tokens_per_s": self.tokens / (time.monotonic() - self.since)}
        self.reset()
        return values


def describe(values: dict[str, float], at: Progress) -> str:
    note = f"loss {values['loss']:.3f}  {values['tokens_per_s']:,.0f} tok/s  "
    note += f"lr {values['lr']:.2e}  |g| {values['grad_norm']:.2f}"
    return note if at.best is None else f"{note}  best {at.best:.2f}"


def prefetch(
    steps: Steps, at: Progress, last: int, world: World, device: torch.device
) -> Iterator[tuple[list[Batch], int]]:
    """The micro-batches of each step in order, built in a background thread while the device computes.

    Counts `epoch` and `position` forward as batches are handed out, not as they are built.
    """
    from concurrent.futures import ThreadPoolExecutor

    def places() -> Iterator[tuple[int, int]]:
        epoch, position = at.epoch, at.position
        for _ in range(at.step, last):
            if position >= steps.count(epoch):
                epoch, position = epoch + 1, 0
            yield epoch, position
            position += 1

    def build(place: tuple[int, int]) -> tuple[list[Batch], int]:
        batches, count = steps.load(*place, world)
        return [batch.pin_memory() for batch in batches] if device.type == "cuda" else batches, count

    with ThreadPoolExecutor(1) as pool:
        queue = []
        for place in places():
            queue.append((place, pool.submit(build, place)))
            if len(queue) < 4:
                continue
            yield from handed_out(queue, at, device)
        while queue:
            yield from handed_out(queue, at, device)


def handed_out(queue: list[Any], at: Progress, device: torch.device) -> Iterator[tuple[list[Batch], int]]:
    (epoch, position), future = queue.pop(0)
    batches, count = future.result()
    at.epoch, at.position = epoch, position + 1
    yield [batch.to(device, non_blocking=True) for batch in batches], count


@contextmanager
def ctrl_c() -> Iterator[list[int]]:
    """Inside, Ctrl-C (or a polite kill) only leaves a note; a second one interrupts at once, as usual."""
    note: list[int] = []

    def handler(number: int, frame: Any) -> None:
        if note:
            raise KeyboardInterrupt
        note.append(number)

    try:
        old = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: whoever runs us there takes care of signals
        old = {}
    try:
        yield note
    finally:
        for number, previous in old.items():
            signal.signal(number, previous)

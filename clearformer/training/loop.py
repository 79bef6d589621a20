"""The training loop, readable whole.

    for each step:   batches -> loss sum / global count -> backward -> clip -> schedule -> optimiser
    now and then:    log, validate (keep the best), save (resume exactly)

Step k's randomness is seeded by (seed, k, rank) and its batches by (seed, epoch, position), so that a resumed run
needs to remember only counters: it continues as if it had never stopped, bit for bit wherever the device's kernels are
repeatable (the CPU; CUDA with `deterministic`).
"""

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim import Optimizer

from clearformer.checkpoint import RunFolder, like, load_tensors, load_weights, save_tensors, weights_of, whole
from clearformer.config import Config
from clearformer.data.batch import Tensors
from clearformer.errors import CheckpointError, Interrupted
from clearformer.metric import LOSS, Metric
from clearformer.training.average import Average, learning
from clearformer.training.compiling import How
from clearformer.training.distributed import World, gathered, sum_gradients
from clearformer.training.feed import StepSource, feed
from clearformer.training.finite import are_finite, check_scores, diverged
from clearformer.training.interrupt import ctrl_c
from clearformer.training.journal import Journal, Meter
from clearformer.training.optim import load_state, set_rate, state_of
from clearformer.training.precision import Precision, autocast
from clearformer.training.schedules import ScheduleConfig
from clearformer.training.statistics import set_training, share_statistics

Objective = Callable[[nn.Module, Any], Any]  # -> (total: Tensor, count: int)
Validate = Callable[[nn.Module, int], dict[str, float]]


class TrainConfig(Config):
    """[train]"""

    steps: int = Field(8000, ge=1, description="optimiser steps")
    max_tokens: int | None = Field(
        None, ge=1, description="target tokens, or pictures, after which training ends, if sooner"
    )
    max_seconds: float | None = Field(None, gt=0, description="of training and validation, likewise")
    tokens: int = Field(4096, ge=1, description="of one micro-batch, a side of it, padding included; or its pictures")
    accumulation: int = Field(1, ge=1, description="micro-batches a rank and step")
    clip: float = Field(1.0, ge=0, description="largest norm of the gradient; 0 is no clipping")
    ema: float = Field(0.999, ge=0, lt=1, description="decay of the averaged weights that are used; 0 uses the last")
    seed: int = Field(0, ge=0, lt=2**32)
    log_every: int = Field(50, ge=1, description="steps")
    validate_every: int = Field(500, ge=1, description="steps")
    save_every: int = Field(500, ge=1, description="steps")
    patience: int = Field(0, ge=0, description="validations without a better one before stopping; 0 never stops early")
    metric: str | None = Field(
        None, description="which validation score decides what the best weights are: bleu for a translator if not given"
    )
    precision: Precision = "auto"
    compile: How = Field("off", description="blocks or whole: minutes of compiling for faster steps of a large model")
    deterministic: bool = Field(False, description="the same bits each time on CUDA too, slower")
    parallel: Literal["replicate", "shard"] = "replicate"
    tensorboard: bool = False

    def budget(self, unit: str = "tokens") -> str:
        """What a training is given, in words: what was set beside the steps, or else the steps."""
        limits = {"seconds": self.max_seconds, unit: self.max_tokens}
        given = [f"{limit:,} {name}" for name, limit in limits.items() if limit is not None]
        return " or ".join(given or [f"{self.steps:,} steps"])


def rounds(steps: int, n: int) -> dict[str, int]:
    """Validated and saved n times in so many steps."""
    every = max(5, steps // n)
    return {"validate_every": every, "save_every": every, "log_every": min(50, every)}


@dataclass
class Progress:
    """Where a training stands: all that must be remembered besides tensors."""

    step: int = 0
    epoch: int = 0
    position: int = 0  # micro-batches of this epoch, of all ranks, that were trained on
    tokens: int = 0  # target tokens seen
    seconds: float = 0.0  # spent training, validation and saving included
    best: float | None = None  # the deciding score, negated where lower is better
    best_step: int = 0
    stale: int = 0  # validations since the best
    judged: int = 0  # the step of the last validation
    scores: dict[str, float] = field(default_factory=dict)


class Trainer:
    """One model in training. `validate` scores a model; without it, the last weights are the ones to use.

    `facts` travel with the weights, for whoever loads them. `part` names the tensors that are saved, where a base has
    the others; all of them if not given. `unit` is what a batch counts. `carried` is what the objective keeps from step
    to step, for each micro-batch of a step by its number: the state of a recurrent network that reads on. `metric` is
    the score of `validate` that decides which weights are the best.
    """

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
        facts: Mapping[str, Any] | None = None,
        part: Collection[str] | None = None,
        unit: str = "tokens",
        carried: dict[int, Tensor] | None = None,
        metric: Metric = LOSS,
    ) -> None:
        self.model, self.objective, self.optimizer, self.schedule = model, objective, optimizer, schedule
        self.config, self.run, self.device, self.world, self.validate = config, run, device, world, validate
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.facts, self.part, self.metric = facts or {}, part, metric
        self.carried = {} if carried is None else carried
        self.average = Average(model, config.ema) if config.ema else None
        self.meter = Meter(device, unit)
        self.progress = Progress()

    def train(self, steps: StepSource) -> Progress:
        """From where `progress` stands until the budget is spent, or nothing gets better, or Ctrl-C."""
        at, config = self.progress, self.config
        n_steps = 0 if self.is_stale or self.is_spent else config.steps - at.step
        total = config.steps if config.max_tokens is None and config.max_seconds is None else None
        journal = Journal(self.run.metrics, total, at.step, not self.world.is_first, config.tensorboard)
        clock = time.monotonic() - at.seconds
        set_training(self.model)
        self.meter.start()
        try:
            with ctrl_c() as interrupted:
                if self.is_spent and at.judged < at.step:  # resumed when nothing was left but this
                    self.judge(journal)
                    at.seconds = time.monotonic() - clock
                    journal.sync()
                    self.save()
                for batches, count in feed(steps, at, n_steps, self.world, self.device):
                    self.meter.add(*self.step(batches, count), count)
                    journal.progress(at.step, self.length)
                    if config.max_seconds is not None:
                        at.seconds = self.world.agree(time.monotonic() - clock)
                    is_asked, is_last = self.world.any(bool(interrupted)), self.is_spent
                    if not (is_asked or self.is_due(config.log_every, config.validate_every, config.save_every)):
                        continue
                    if not self.meter.stop():
                        raise diverged("the training loss or its gradient", at.step, self.run)
                    if self.is_due(config.log_every):
                        self.log(journal)
                    if self.is_due(config.validate_every):
                        self.judge(journal)
                    at.seconds = time.monotonic() - clock
                    if is_asked or self.is_stale or self.is_due(config.save_every):
                        journal.sync()
                        self.save()
                    if is_asked and not is_last:
                        raise Interrupted
                    if self.is_stale:
                        journal.say(f"stopped early: {at.stale} validations without a better {self.metric.name}")
                    if self.is_stale or is_last:
                        break
                    self.meter.start()
        finally:
            journal.close()
        return at

    def is_due(self, *every: int) -> bool:
        """Whether one of these periods, or the training itself, ends with this step."""
        return self.is_spent or any(self.progress.step % n == 0 for n in every)

    @property
    def is_spent(self) -> bool:
        """Whether the training has had all that it was given: steps, tokens or seconds."""
        at, config = self.progress, self.config
        return (
            at.step >= config.steps
            or at.tokens >= (config.max_tokens or math.inf)
            or at.seconds >= (config.max_seconds or math.inf)
        )

    @property
    def length(self) -> float:
        """How many steps there will be, as far as can be told from those there were."""
        at, config = self.progress, self.config
        by_tokens = at.step * config.max_tokens / at.tokens if config.max_tokens and at.tokens else math.inf
        by_seconds = at.step * config.max_seconds / at.seconds if config.max_seconds and at.seconds else math.inf
        return min(config.steps, by_tokens, by_seconds)

    @property
    def is_stale(self) -> bool:
        return bool(self.config.patience) and self.progress.stale >= self.config.patience

    def step(self, batches: Sequence[Tensors], count: int) -> tuple[Tensor, Tensor]:
        """One update; returns the loss summed over the tokens of all ranks, and the norm of the gradient unclipped."""
        at = self.progress
        at.step += 1
        at.tokens += count
        reseed((self.config.seed * 1_000_003 + at.step) * 1009 + self.world.rank, self.device)
        loss = self.backward(batches, count)
        norm = whole(nn.utils.clip_grad_norm_(self.parameters, self.config.clip or float("inf")))
        set_rate(self.optimizer, self.rate(at.step))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update(at.step)
        return loss, norm

    def backward(self, batches: Sequence[Tensors], count: int) -> Tensor:
        """Leave in every .grad the gradient of the mean loss over `count` tokens: all micro-batches of all ranks."""
        loss = torch.zeros((), device=self.device)
        for batch in batches:
            with autocast(self.device, self.config.precision):
                total, _ = self.objective(self.model, batch)
            (total / count).backward()
            loss += total.detach()
        if self.world.size > 1 and self.config.parallel == "replicate":
            sum_gradients(self.parameters, self.world)
        share_statistics(self.model, self.world)
        return self.world.sum(loss)

    def rate(self, step: int) -> float:
        peak: float = self.optimizer.defaults["lr"]
        return peak * self.schedule.factor(step, self.length)

    def log(self, journal: Journal) -> None:
        at = self.progress
        values = {**self.meter.read(), "lr": self.rate(at.step), "epoch": at.epoch}
        journal.log(at.step, "train", values)
        unit = self.meter.unit
        note = f"loss {values['loss']:.3f}  {values[f'{unit}_per_s']:,.0f} {unit}/s  "
        note += f"lr {values['lr']:.2e}  |g| {values['grad_norm']:.2f}"
        best = f"  best {self.metric.format(at.scores[self.metric.name])}" if at.scores else ""
        journal.note(note + best)

    def judge(self, journal: Journal) -> None:
        """Validate with the weights that would be used, and keep them if they are the best so far.

        All ranks validate, so that none waits in vain, and the first one's scores count for all.
        """
        self.check_weights()  # before decoding, which may fail in stranger ways
        at, metric = self.progress, self.metric
        at.judged = at.step
        with self.average.swapped_in(self.model) if self.average is not None else nullcontext():
            if self.validate is not None:
                self.model.eval()
                with gathered(self.model):
                    scores = self.world.agree(self.validate(self.model, at.step))
                set_training(self.model)
                check_scores(scores, metric, at.step, self.run)
                journal.log(at.step, "valid", scores)
                journal.say(f"step {at.step:>6}  " + "  ".join(f"{k} {v:.4g}" for k, v in scores.items()))
                value, sign = scores[metric.name], -1 if metric.lower_is_better else 1
                if not metric.better(value, None if at.best is None else sign * at.best):
                    at.stale += 1
                    return
                at.best, at.best_step, at.stale, at.scores = sign * value, at.step, 0, scores
            self.write(
                self.run.model, weights_of(self.model, self.part), {**self.facts, "step": at.step, "scores": at.scores}
            )

    def save(self) -> None:
        """Everything needed to go on, in one file, which replaces the previous one in one move."""
        self.check_weights()
        tensors = {f"model.{name}": tensor for name, tensor in weights_of(self.model, self.part).items()}
        tensors |= {f"optimizer.{name}": tensor for name, tensor in state_of(self.optimizer, self.model).items()}
        if self.average is not None:
            tensors |= {f"average.{name}": tensor for name, tensor in self.average.weights.items()}
        for own in self.world.gather({n: state.cpu() for n, state in self.carried.items()}):
            tensors |= {f"carried.{n}": state for n, state in own.items()}
        facts = {"progress": asdict(self.progress), "meter": self.meter.state(), "optimizer": self.optimizer_name}
        self.write(self.run.last, tensors, facts)

    def check_weights(self) -> None:
        """Refuse to go on, on every rank, if a weight that learns, or its average, is not finite on any of them."""
        weights = [tensor for _, tensor in learning(self.model)]
        if self.average is not None:
            weights += self.average.weights.values()
        if self.world.any(not are_finite(weights)):
            raise diverged("a weight", self.progress.step, self.run)

    def write(self, path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """All ranks give their slices, tensor by tensor; the first writes them, whole."""
        full = {}
        for name, tensor in tensors.items():
            ready = whole(tensor)
            if self.world.is_first:
                full[name] = ready.cpu()
        if self.world.is_first:
            save_tensors(path, full, facts)

    def resume(self) -> None:
        """Stand where `save` stood, on however many ranks."""
        tensors, facts = load_tensors(self.run.last)
        where = str(self.run.last)
        if "progress" not in facts:
            raise CheckpointError(f"{where} holds no training state", "resume from the run folder of a training")
        if facts["optimizer"] != self.optimizer_name:
            raise CheckpointError(
                f"{where} was trained with {facts['optimizer']}, not {self.optimizer_name}",
                "resume with the same optim.kind; its memory fits no other",
            )
        load_weights(self.model, under("model.", tensors), where, self.part)
        load_state(self.optimizer, self.model, under("optimizer.", tensors))
        if self.average is not None:
            self.average = Average(self.model, self.config.ema)
            for name, tensor in under("average.", tensors).items():
                self.average.weights[name].copy_(like(tensor, self.average.weights[name]))
        self.carried.clear()
        for n, state in under("carried.", tensors).items():
            if int(n) % self.world.size == self.world.rank:  # the micro-batches that this rank will have
                self.carried[int(n)] = state.to(self.device)
        self.progress = Progress(**facts["progress"])
        self.meter.load_state(facts["meter"])

    @property
    def optimizer_name(self) -> str:
        return type(self.optimizer).__name__


def reseed(seed: int, device: torch.device) -> None:
    """torch.manual_seed for this device and the CPU alone.

    That one also seeds devices that are not there: for each it notes down the call stack, a millisecond, and forgets
    none of them.
    """
    torch.default_generator.manual_seed(seed)
    if device.type in ("cuda", "mps"):
        getattr(torch, device.type).manual_seed(seed)


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}

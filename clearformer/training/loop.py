"""The training loop.

    every step:      batches -> loss sum / global count -> backward -> clip -> schedule -> optimiser
    periodically:    log, validate (save the best weights), save a checkpoint

Random draws of step k are seeded by (seed, k, rank) and its batches by (seed, epoch, position), so that a checkpoint
needs no random state. A resumed run is bit-identical to an uninterrupted one if the device's kernels are deterministic
(on the CPU, and on CUDA with `deterministic`).
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from clearformer.checkpoint import RunFolder, Stored, load_weights, loaded, save_tensors, under, weights_of, whole
from clearformer.checksums import seal
from clearformer.data.batch import Tensors
from clearformer.errors import CheckpointError, Interrupted, Paused, Stopped, TrainingError
from clearformer.metric import LOSS, Metric
from clearformer.training.average import Average, learning
from clearformer.training.budget import is_due, is_spent, is_stale, length
from clearformer.training.config import TrainConfig
from clearformer.training.distributed import Poll, World, block_by_block
from clearformer.training.feed import StepSource, feed
from clearformer.training.finite import RATE, SKIP, are_finite, check_results, diverged
from clearformer.training.gradient_sums import GradientSums
from clearformer.training.graphs import Graphs
from clearformer.training.histograms import Histograms
from clearformer.training.interrupt import leaving_early, noted
from clearformer.training.journal import Journal, Meter, cut_back
from clearformer.training.loggers import Loggers
from clearformer.training.nonfinite import Guard
from clearformer.training.optim import is_recordable, load_state, set_rate, state_of
from clearformer.training.parts import opened
from clearformer.training.precision import autocast, reseed
from clearformer.training.progress import Progress, check_facts, fitting
from clearformer.training.saving import Saver
from clearformer.training.schedules import ScheduleConfig
from clearformer.training.split import Splitter, are_divided
from clearformer.training.statistics import average_statistics, set_training, statistics
from clearformer.wording import count

Objective = Callable[[nn.Module, Any], Any]  # -> (total: Tensor, count: int)
Validate = Callable[[nn.Module, int], dict[str, float]]
Complete = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]


class Whole(Mapping[str, Tensor]):
    """Weights by name, each gathered from all ranks when it is looked up. All ranks must do this together."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = tensors

    def __getitem__(self, name: str) -> Tensor:
        return whole(self.tensors[name]).cpu()

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)


class Trainer:
    """Trains one model. `validate` returns its metrics; without it, the last weights are saved as the best.

    `facts` is metadata that is saved with the weights. `part` lists the tensors to save if the others are stored with a
    base; by default, all are saved. `unit` is the unit of `tokens`: tokens, examples or images. `carried` is the state
    that the objective keeps between steps, by the index of the micro-batch within a step, as for recurrent networks
    that continue a text. `metric` is the metric of `validate` that decides the best checkpoint. `loggers` receive what
    the journal does. `complete` is given the weights that are saved as the best, and returns those that it changes.
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
        loggers: Loggers | None = None,
        complete: Complete | None = None,
    ) -> None:
        self.model, self.objective, self.optimizer, self.schedule = model, objective, optimizer, schedule
        self.config, self.run, self.device, self.world, self.validate = config, run, device, world, validate
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.facts, self.part, self.metric, self.complete = facts or {}, part, metric, complete
        self.carried = {} if carried is None else carried
        is_recorded = is_recordable(optimizer)
        self.average = Average(model, config.ema, is_recorded) if config.ema else None
        self.dtype = torch.float64 if config.precision == "float64" else torch.float32  # of sums of losses
        self.meter, self.group = Meter(device, unit, self.dtype), 1
        self.guard = Guard(config.on_nonfinite, device, [buffer for _, buffer in statistics(model)])
        self.histograms = Histograms(model, config, run.histograms, world.is_first)
        self.is_sharded = world.size > 1 and config.parallel == "shard"
        self.saver: Saver | None = None  # of a sharded model, as soon as something is saved
        is_replicated = world.size > 1 and config.parallel == "replicate"
        self.sums = GradientSums(self.parameters if is_replicated else [], world)
        self.splitter = Splitter(model, self.carried, self.start_again, world, self.is_sharded, self.sums.begin_last)
        self.progress, self.loggers = Progress(), loggers or Loggers()
        self.is_open, self.saved = False, (-1, -1)  # the journal; step and validation of the last checkpoint
        self.signals: list[int] = []
        self.finishes_step = True  # on a signal; not while the first step is being compiled, which takes minutes
        self.results: dict[str, float] = {}  # of the last validation
        self.graphs = Graphs(self.update, device) if is_recorded else None

    def train(self, source: StepSource) -> Progress:
        """Run all remaining steps. A signal, such as Ctrl-C, finishes the step and saves a checkpoint first."""
        with noted(lambda: self.finishes_step) as self.signals:
            for _ in self.steps(source):
                pass
        return self.progress

    def steps(self, source: StepSource) -> Iterator[int]:
        """Continue from `progress` until the budget is spent, early stopping applies, or a signal arrives.

        One step is trained per item; its number is yielded when everything due after it is done. If the caller closes
        the generator earlier, a checkpoint is saved. The caller's time between two steps is not counted.
        """
        at, config = self.progress, self.config
        self.begin()
        self.group = source.group
        try:
            if config.on_nonfinite == "rewind" and not self.run.checkpoint.exists():
                self.save()
            if at.judged < at.step and is_due(at, config, config.validate_every):  # stopped before this validation
                self.run_validation()
                self.checkpoint()
            n_steps = 0 if is_stale(at, config) or is_spent(at, config) else config.steps - at.step
            for batches, n_tokens in feed(source, at, n_steps, self.world, self.device):
                self.step(batches, n_tokens)
                self.finishes_step = True
                self.journal.progress(at.step, length(at, config))
                if config.max_seconds is not None:
                    at.seconds = self.world.agree(time.monotonic() - self.clock)
                is_over = self.complete_step()
                left = time.monotonic()
                yield at.step
                self.skip(time.monotonic() - left)
                if is_over:
                    break
            self.wait_for_saves()
        except TrainingError:  # on all ranks
            self.wait_for_saves()
            raise
        except GeneratorExit:  # the caller stops here
            self.skip(time.monotonic() - left)
            self.checkpoint()
            raise
        finally:
            self.end()

    def begin(self) -> None:
        """Open the journal and start the clocks, before the first step."""
        if not self.is_open:
            at, config = self.progress, self.config
            total = config.steps if config.max_tokens is None and config.max_seconds is None else None
            self.journal = Journal(self.run.metrics, total, at.step, not self.world.is_first, self.loggers.log)
            self.histograms.begin(at.step)
            if self.world.is_first and self.run.samples.exists():
                cut_back(self.run.samples, at.step)
            self.is_open = True
            self.clock, self.saved_at = time.monotonic() - at.seconds, time.monotonic()
            set_training(self.model)
            self.meter.start()

    def end(self) -> None:
        if self.is_open:
            self.is_open = False
            self.journal.close()
        if self.saver is not None:
            self.saver.close()

    def skip(self, seconds: float) -> None:
        """Leave these seconds out of the clocks."""
        self.clock += seconds
        self.meter.since += seconds

    def complete_step(self) -> bool:
        """Do what is due after a step: log, validate, save. Returns whether the run is over."""
        at, config = self.progress, self.config
        minutes = (time.monotonic() - self.saved_at) / 60
        signal, is_late = self.world.largest(self.signal, minutes > config.save_minutes)
        is_last = is_spent(at, config)
        is_ending = bool(signal) or at.step == config.pause
        if not (is_ending or is_late or is_due(at, config, config.log_every, config.validate_every, config.save_every)):
            return False
        if self.has_rewound():
            return False
        if is_due(at, config, config.log_every) and self.meter.steps:
            self.log()
        if is_due(at, config, config.validate_every):
            self.histograms.write(at.step)
            signal = signal or self.run_validation()  # if it is left out, it follows when the run is resumed
        at.seconds = time.monotonic() - self.clock
        is_over = is_last or is_stale(at, config)
        # Not `is_due`: since the validation, the clocks of the ranks differ, and train.max_seconds may be over on one.
        if is_ending or signal or is_late or is_over or at.step % config.save_every == 0:
            self.journal.sync()
            self.begin_save()
        if is_ending or signal or is_over:
            self.wait_for_saves()
        if signal and (not is_last or at.judged < at.step):
            raise Interrupted(signal)
        if is_ending and not is_over:
            raise Paused
        if is_stale(at, config):
            self.journal.say(f"stopped early: {count(at.stale, 'validation')} without a better {self.metric.name}")
        self.meter.start()
        return is_over

    def has_rewound(self) -> bool:
        """Stop the clock, and do what train.on_nonfinite says of bad steps. Returns whether the run went back."""
        is_finite, bad, at = self.meter.stop(), self.guard.read(), self.progress
        if is_finite and bad is None:
            return False
        action = "stop" if bad is None else self.guard.action(bad, len(at.left_out))
        if bad is None or action == "stop":
            where = (at.step, self.run, "") if bad is None else (bad.first, self.run, bad.batch(self.group))
            raise diverged("the training loss or its gradient", *where, SKIP if self.guard.how == "stop" else RATE)
        if action == "rewind":
            self.rewind(bad.place)
        else:
            self.meter.forget(bad.tokens, bad.n_steps)
        self.journal.say(bad.describe(self.group, action, at.step))
        return action == "rewind"

    def rewind(self, place: tuple[int, int] | None) -> None:
        """Go back to the last checkpoint, and leave out a batch from now on."""
        at, left_out = self.progress, [*self.progress.left_out, list(place or ())]
        self.end()
        self.resume()
        vars(at).update({**vars(self.progress), "left_out": left_out})
        self.progress = at
        if self.graphs is not None:  # they read the tensors of before
            self.graphs = Graphs(self.update, self.device)
        self.begin()

    def checkpoint(self) -> None:
        """Save a checkpoint between two steps, unless there is one already; return when it is complete."""
        if self.saved == (self.progress.step, self.progress.judged):
            self.wait_for_saves()
            return
        if self.has_rewound():
            return
        self.progress.seconds = time.monotonic() - self.clock
        self.journal.sync()
        self.save()
        self.meter.start()

    @property
    def signal(self) -> int:
        """The number of the first signal that this process has received, or 0."""
        return self.signals[0] if self.signals else 0

    def step(self, batches: Sequence[Tensors], n_tokens: int) -> None:
        """Update the weights once. `n_tokens` counts the target tokens of all micro-batches of all ranks."""
        at = self.progress
        at.step += 1
        at.tokens += n_tokens
        self.seed()
        set_rate(self.optimizer, self.rate(at.step))
        if self.average is not None:
            self.average.set_step(at.step)
        if self.saver is not None:
            self.saver.check()
        self.meter.count(n_tokens)
        self.histograms.set_step(at.step)
        self.guard.begin(at.step, (at.epoch, at.position))
        if self.graphs is not None:
            is_plain = self.histograms.is_due or are_divided(batches, at.largest_part)
            (self.graphs.plain if is_plain else self.graphs)(batches, n_tokens)
        else:
            self.update(batches, n_tokens)

    def seed(self) -> None:
        """Seed the random draws of a step."""
        reseed((self.config.seed * 1_000_003 + self.progress.step) * 1009 + self.world.rank, self.device)

    def start_again(self) -> None:
        """Delete what a step has computed so far, before its optimiser."""
        self.optimizer.zero_grad(set_to_none=True)
        self.sums.start_again()
        self.histograms.activations.clear()
        self.seed()

    def update(self, batches: Sequence[Tensors], n_tokens: int | Tensor) -> None:
        """The part of a step that runs on the device. It never waits for the host, so graphs.py can record it."""
        kept = self.guard.keep()
        loss = self.backward(batches, n_tokens)
        self.histograms.keep_gradients()
        norm = whole(nn.utils.clip_grad_norm_(self.parameters, self.config.clip or float("inf")))
        is_good = self.guard.look(loss, norm, n_tokens)
        self.guard.update(self.optimizer, is_good)
        self.guard.restore(is_good, kept, [*self.carried.values()])
        self.optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update()
        self.meter.add(loss, norm, is_good if self.guard.how == "skip" else None)

    def backward(self, batches: Sequence[Tensors], n_tokens: int | Tensor) -> Tensor:
        """Compute the gradient of the mean loss over `n_tokens`, the tokens of all micro-batches of all ranks."""

        def add_gradient(batch: Tensors) -> Tensor:
            with autocast(self.device, self.config.precision):
                total, _ = self.objective(self.model, batch)
            (total / n_tokens).backward()
            return total.detach()

        zero = torch.zeros((), device=self.device, dtype=self.dtype)
        loss = self.splitter.sum(batches, add_gradient, zero, self.progress)
        self.sums.finish()
        average_statistics(self.model, self.world)
        self.settle_saves()  # weights change next
        return self.world.sum(loss)

    def rate(self, step: int) -> float:
        peak: float = self.optimizer.defaults["lr"]
        return peak * self.schedule.factor(step, length(self.progress, self.config))

    def log(self) -> None:
        at = self.progress
        values = {**self.meter.read(), "lr": self.rate(at.step), "epoch": at.epoch}
        self.journal.log(at.step, "train", values)
        unit = self.meter.unit
        note = f"loss {values['loss']:.3f}  {values[f'{unit}_per_s']:,.0f} {unit}/s  "
        note += f"lr {values['lr']:.2e}  |g| {values['grad_norm']:.2f}"
        best = f"  best {self.metric.format(at.scores[self.metric.name])}" if at.scores else ""
        self.journal.note(note + best)

    def run_validation(self) -> int:
        """Validate the averaged weights, and save them if they are the best so far.

        All ranks validate, so that none is left waiting; the metrics of the first rank are used. A signal ends the
        validation early, without metrics: its number is returned, or 0.
        """
        self.check_weights()  # before decoding, whose errors would be harder to understand
        self.settle_saves()
        self.histograms.write(self.progress.step)
        at, metric = self.progress, self.metric
        with self.average.swapped_in(self.model) if self.average is not None else nullcontext():
            if self.validate is not None:
                results = self.validated(self.validate)
                self.world.barrier()
                if signal := self.world.largest(0 if results else self.signal)[0]:
                    return signal
                self.results = results = self.world.agree(results)
                check_results(results, metric, at.step, self.run)
                at.judged = at.step
                self.journal.log(at.step, "valid", results)
                self.journal.say(f"step {at.step:>6}  " + "  ".join(f"{k} {v:.4g}" for k, v in results.items()))
                value, sign = results[metric.name], -1 if metric.lower_is_better else 1
                if not metric.better(value, None if at.best is None else sign * at.best):
                    at.stale += 1
                    return 0
                at.best, at.best_step, at.stale, at.scores = sign * value, at.step, 0, results
            at.judged = at.step
            facts = {**self.facts, "step": at.step, "scores": at.scores}
            weights = weights_of(self.model, self.part)
            if self.complete is not None:  # on all ranks, since it may read weights
                weights |= self.complete(Whole(weights))
            self.write(self.run.model, weights, facts)
            self.settle_saves()  # the average is swapped out next
        return 0

    def tested(self, test: Validate) -> dict[str, Any]:
        """Return what a test of the uncompiled best weights says. The sharded model takes them, each rank its rows."""
        with opened(self.run.model) as (weights, _):
            load_weights(self.model, weights, str(self.run.model), self.part)
        self.model.eval()
        # A signal during the last step does not end the test.
        with torch.compiler.set_stance("force_eager"), block_by_block(self.model):
            return test(self.model, self.progress.step)

    def validated(self, validate: Validate) -> dict[str, float]:
        """Return the metrics of the model, or none after a signal. Afterwards it is in training mode again."""
        poll = Poll(self.world) if self.is_sharded else None
        self.model.eval()
        try:
            with block_by_block(self.model), leaving_early(self.signals, poll):
                return validate(self.model, self.progress.step)
        except Stopped:
            if not (self.signals or (poll and poll.noticed)):
                raise
            return {}
        finally:
            set_training(self.model)

    def save(self) -> None:
        """Save a checkpoint: everything needed to resume, replaced atomically."""
        self.begin_save()
        self.wait_for_saves()

    def wait_for_saves(self) -> None:
        """Wait until everything is saved that is being saved beside training."""
        if self.saver is not None:
            self.saver.wait()

    def settle_saves(self) -> None:
        """Before weights change: let the copies of them that are being saved be finished."""
        if self.saver is not None:
            self.saver.settle()

    def begin_save(self) -> None:
        """Save a checkpoint. If the model is sharded, training goes on meanwhile."""
        self.check_weights()
        tensors = {f"model.{name}": tensor for name, tensor in weights_of(self.model, self.part).items()}
        tensors |= {f"optimizer.{name}": tensor for name, tensor in state_of(self.optimizer, self.model).items()}
        if self.average is not None:
            tensors |= {f"average.{name}": tensor for name, tensor in self.average.weights.items()}
        for states in self.world.gather({n: state.cpu() for n, state in self.carried.items()}):
            tensors |= {f"carried.{n}": state for n, state in states.items()}
        self.splitter.agree(self.progress)
        facts = {"progress": asdict(self.progress), "meter": self.meter.state(), "optimizer": self.optimizer_name}
        self.write(self.run.last, tensors, facts)
        self.saved, self.saved_at = (self.progress.step, self.progress.judged), time.monotonic()
        if not self.is_sharded and self.world.is_first:
            self.run.discard_parts()
            seal(self.run.path)  # with the log and the prepared data

    def check_weights(self) -> None:
        """Raise on every rank if a trainable weight, or its average, is not finite on any rank."""
        weights = [tensor for _, tensor in learning(self.model)]
        if self.average is not None:
            weights += self.average.weights.values()
        if self.world.any(not are_finite(weights)):
            raise diverged("a weight", self.progress.step, self.run)

    def write(self, path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Write tensors and facts: each rank its part, beside training, or the first rank what is the same on all."""
        if self.is_sharded:
            self.saver = self.saver or Saver(self.run, self.world)
            self.saver.save(path, tensors, facts)
            return
        if self.world.is_first:
            save_tensors(path, tensors, facts)
        self.world.barrier()

    def resume(self) -> None:
        """Load the last checkpoint. The number of ranks may have changed since it was saved."""
        self.wait_for_saves()
        with opened(self.run.checkpoint) as (tensors, facts):
            self.load(tensors, facts, str(self.run.checkpoint))

    def load(self, tensors: Mapping[str, Stored], facts: Mapping[str, Any], where: str) -> None:
        """Continue from a checkpoint. This rank reads no more than its own part."""
        check_facts(facts, where)
        if facts["optimizer"] != self.optimizer_name:
            raise CheckpointError(
                f"{where} was trained with {facts['optimizer']}, not {self.optimizer_name}",
                "resume with the optim.kind of the checkpoint; optimisers cannot load each other's state",
            )
        load_weights(self.model, under("model.", tensors), where, self.part)
        with fitting(where):
            load_state(self.optimizer, self.model, under("optimizer.", tensors))
            if self.average is not None:
                self.average = Average(self.model, self.config.ema, self.graphs is not None)
                self.average.load(under("average.", tensors))
        self.carried.clear()
        for n, state in under("carried.", tensors).items():
            if int(n) % self.world.size == self.world.rank:  # the micro-batches of this rank
                self.carried[int(n)] = loaded(state).to(self.device)
        self.progress = Progress(**facts["progress"])
        self.meter.load_state(facts["meter"])

    @property
    def optimizer_name(self) -> str:
        return type(self.optimizer).__name__

"""A run that the caller drives, step by step.

    for step in session:                 trains one step, and does what is due after it: log, validate, save
        if step.loss < 2:
            session.validate()
            break
    session.close()                      saves a checkpoint; clearformer train --resume continues the run
    session.finish()                     or: the remaining steps, the test and the report

`clearformer.train` is `finish` alone: both run the same generator, `Trainer.steps`.
"""

import atexit
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self
from weakref import ref

from torch import Tensor

from clearformer.errors import ConfigError
from clearformer.training.feed import StepSource
from clearformer.training.interrupt import noted
from clearformer.training.journal import console
from clearformer.training.loop import Trainer


@dataclass(frozen=True)
class Step:
    """A step that was trained. On a GPU, reading `loss` or `grad_norm` waits for the step to be computed."""

    number: int
    epoch: int
    tokens: int  # target tokens of this step (images or examples for other tasks), over all processes
    lr: float
    measured: Tensor  # (2,): the summed loss, and the gradient norm before clipping

    @property
    def loss(self) -> float:
        """The mean training loss of this step."""
        return float(self.measured[0]) / self.tokens

    @property
    def grad_norm(self) -> float:
        return float(self.measured[1])

    def __repr__(self) -> str:
        return f"Step(number={self.number}, loss={self.loss:.4g}, grad_norm={self.grad_norm:.4g}, lr={self.lr:.3g})"


class Session:
    """A run, driven by iteration. As a context manager, or at the end of the process, it closes itself.

    `context` holds the folder and the processes of the run; leaving it releases them, and explains errors. `test`
    returns the report of a run whose steps are all done. In a distributed run, all processes must make the same calls.
    """

    def __init__(
        self, trainer: Trainer, source: StepSource, test: Callable[[], dict[str, Any]], context: AbstractContextManager
    ) -> None:
        self.trainer, self.test, self.steps = trainer, test, trainer.steps(source)
        self.context: AbstractContextManager | None = context
        self.report: dict[str, Any] | None = None
        """The report, as `clearformer.train` returns it, as soon as the run is complete."""
        self.at_exit = partial(close_at_exit, ref(self))
        atexit.register(self.at_exit)

    # --- driving

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Step:
        if self.context is None:
            raise StopIteration
        trainer = self.trainer
        before = trainer.progress.tokens
        with self.ending_on_errors(), noted(lambda: trainer.finishes_step) as trainer.signals:
            number = next(self.steps, None)
        if number is None:
            self.complete()
            raise StopIteration
        at = trainer.progress
        return Step(number, at.epoch, at.tokens - before, trainer.rate(number), trainer.meter.last.clone())

    def finish(self) -> dict[str, Any]:
        """Run the remaining steps, test the best checkpoint, and return the report."""
        if self.context is not None:
            with self.ending_on_errors(), noted(lambda: self.trainer.finishes_step) as self.trainer.signals:
                for _ in self.steps:
                    pass
            self.complete()
        if self.report is None:
            raise ConfigError("the session is closed", f"resume the run: clearformer train --resume --out {self.run}")
        return self.report

    def validate(self) -> dict[str, float]:
        """Validate now, save the weights if they are the best so far, and return the metrics.

        A step is validated once: where a validation was due anyway, its metrics are returned.
        """
        trainer = self.open_trainer()
        if trainer.progress.judged != trainer.progress.step or not trainer.results:
            trainer.run_validation()
            trainer.wait_for_saves()
        return dict(trainer.results)

    def save(self) -> None:
        """Save a checkpoint now."""
        self.open_trainer().checkpoint()

    # --- the end

    def close(self) -> None:
        """Save a checkpoint, and release the run folder. The run can then be resumed. A second call has no effect."""
        if self.context is not None:
            is_begun = self.trainer.progress.step > 0
            self.leave()
            if is_begun:
                say_saved("stopped", self.trainer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def complete(self) -> None:
        if self.trainer.is_sharded:  # all processes test, each with its part of the model
            with self.ending_on_errors():
                report = self.test()
        self.leave(is_complete=True)
        if not self.trainer.is_sharded:
            report = self.test()
        self.report = {"run": str(self.run), **report} if report else {}
        self.trainer.loggers.end(self.report)

    def leave(self, *error: Any, is_complete: bool = False) -> None:
        """Close the generator, which saves a checkpoint if steps remain, and release the folder and the processes."""
        context, self.context = self.context, None
        atexit.unregister(self.at_exit)
        if context is None:
            return
        try:
            self.steps.close()  # type: ignore[attr-defined]
            self.trainer.end()
        finally:
            try:
                context.__exit__(*(error or (None, None, None)))
            finally:
                if not is_complete:
                    self.trainer.loggers.end(None)

    @contextmanager
    def ending_on_errors(self) -> Iterator[None]:
        """End the session if a step fails. The context may replace the error by a clearer one."""
        try:
            yield
        except BaseException:
            self.leave(*sys.exc_info())
            raise

    # --- facts

    @property
    def run(self) -> Path:
        """The run folder."""
        return self.trainer.run.path

    def open_trainer(self) -> Trainer:
        if self.context is None:
            raise ConfigError("the session is closed", f"resume the run: clearformer train --resume --out {self.run}")
        self.trainer.begin()
        return self.trainer

    def __repr__(self) -> str:
        state = "complete" if self.report is not None else "closed" if self.context is None else "open"
        return f"<Session {self.run}: {state}, step {self.trainer.progress.step:,} of {self.trainer.config.steps:,}>"


def close_at_exit(session: "ref[Session]") -> None:
    """Close a session that the process ends with, for example by an exception in the caller's loop."""
    if (still_open := session()) is not None:
        still_open.close()


def say_saved(how: str, trainer: Trainer) -> None:
    """Print where a run has stopped, and how to resume it."""
    console.print(f"{how}: saved at step {trainer.progress.step:,}. Resume with:")
    console.print(f"  clearformer train --resume --out {trainer.run.path}")

"""Loggers: where a run sends its metrics, in addition to metrics.jsonl.

    Logger     the protocol: begin(run), log(step, metrics), end(report)
    LOGGERS    the loggers that train.loggers can name: tensorboard, mlflow, wandb
    Loggers    all loggers of a run, guarded: a logger that fails is dropped with one warning, and the run goes on

MLflow and W&B cannot replace a step. loggers.json in the run folder has the id of the run in each of them, and the last
step that was sent. A resumed run continues under the same id, and skips the steps that were sent already.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from clearformer.checkpoint import write_json
from clearformer.errors import ClearformerError, ConfigError, MachineError
from clearformer.registry import Table
from clearformer.training.journal import console

FILE = "loggers.json"


@dataclass(frozen=True)
class RunFacts:
    """What a logger knows of a run when it begins.

    `recipe` has the tables of the recipe as plain values. `step` is 0, or the step of the checkpoint that the run is
    resumed from. `id` is what `begin` returned when the run was started, None at the first time.
    """

    folder: Path
    recipe: Mapping[str, Any]
    step: int = 0
    id: str | None = None


class Logger:
    """Receives the metrics of a run. A subclass replaces the methods that it needs; these do nothing.

    The constructor imports the library, so that a missing one is reported before the data is prepared.
    """

    is_append_only = False
    """Whether a step that was logged cannot be replaced, so that a resumed run must not log it again."""

    def begin(self, run: RunFacts) -> str | None:
        """Open or continue the log of a run. Returns an id to find it again when the run is resumed."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics of a step by name, such as train/loss or valid/bleu."""

    def end(self, report: Mapping[str, Any] | None) -> None:
        """Close the log. `report` is None if the run is not complete: it was interrupted, or it failed."""


LOGGERS: Table[Callable[[], Logger]] = Table(
    "logger",
    {
        "tensorboard": "clearformer.training.loggers.tensorboard:TensorBoardLogger",
        "mlflow": "clearformer.training.loggers.mlflow:MLflowLogger",
        "wandb": "clearformer.training.loggers.wandb:WandbLogger",
    },
)

Callback = Logger | Callable[[dict[str, Any]], object]
"""A logger, or a function of one record of metrics.jsonl: {"step": 50, "kind": "train", "loss": 2.1, …}."""


@dataclass
class Entry:
    """One logger of a run, with its name in messages. `sent` is its part of loggers.json: {"id": …, "train": 50, …}."""

    name: str
    logger: Logger
    sent: dict[str, Any] = field(default_factory=dict)


class Loggers:
    """The loggers of a run: the ones with these names, and the callbacks.

    An exception in a callback function ends the run: the function is the caller's code, and may raise on purpose.
    """

    def __init__(self, names: Iterable[str] = (), callbacks: Sequence[Callback] = ()) -> None:
        self.entries = [Entry(name, LOGGERS.resolve(name)()) for name in dict.fromkeys(names)]
        self.functions: list[Callable[[dict[str, Any]], object]] = []
        self.file = Path(FILE)
        for number, callback in enumerate(callbacks):
            if is_logger(callback):
                self.entries.append(Entry(f"{type(callback).__name__} (callback {number})", cast(Logger, callback)))
            elif callable(callback) and not isinstance(callback, type):
                self.functions.append(callback)
            else:
                raise ConfigError(
                    f"{callback!r} is not a callback", "give a function of one dictionary, or an instance of a Logger"
                )

    def begin(self, folder: Path, recipe: Mapping[str, Any], step: int, is_resumed: bool) -> None:
        """Begin all loggers. A logger that cannot begin stops a new run, but not a resumed one."""
        self.file = folder / FILE
        before = read_sent(self.file) if is_resumed else {}
        for entry in list(self.entries):
            sent = before.get(entry.name, {})
            try:
                name = entry.logger.begin(RunFacts(folder, recipe, step, sent.get("id")))
            except Exception as error:
                if not is_resumed:
                    raise cannot_begin(entry.name, error) from error
                self.drop(entry, error)
                continue
            entry.sent = sent if name is not None and name == sent.get("id") else {"id": name}
        if any(is_append_only(entry) for entry in self.entries):
            self.remember()
        elif not is_resumed:
            self.file.unlink(missing_ok=True)

    def log(self, step: int, kind: str, values: Mapping[str, float]) -> None:
        """Send the metrics of a step to all loggers, under names such as train/loss."""
        metrics = {f"{kind}/{name}": value for name, value in values.items()}
        for entry in list(self.entries):
            try:
                if is_append_only(entry):
                    if step <= entry.sent.get(kind, -1):
                        continue
                    # Remembered first: if the process is killed in between, a step is missing, but none is repeated.
                    entry.sent[kind] = step
                    self.remember()
                entry.logger.log(step, metrics)
            except Exception as error:
                self.drop(entry, error)
        for function in self.functions:
            function({"step": step, "kind": kind, **values})

    def end(self, report: Mapping[str, Any] | None) -> None:
        """End all loggers. A second call has no effect."""
        for entry in list(self.entries):
            try:
                entry.logger.end(report)
            except Exception as error:
                self.drop(entry, error)
        self.entries, self.functions = [], []

    def drop(self, entry: Entry, error: Exception) -> None:
        """Print one warning, and use this logger no more."""
        self.entries.remove(entry)
        console.print(f"warning: {entry.name} logs nothing from here on, the run goes on: {reason(error)}")

    def remember(self) -> None:
        """Write loggers.json, for the next time that the run is resumed."""
        write_json(self.file, {entry.name: entry.sent for entry in self.entries if is_append_only(entry)})


def is_logger(callback: Any) -> bool:
    return all(callable(getattr(callback, method, None)) for method in ("begin", "log", "end"))


def is_append_only(entry: Entry) -> bool:
    return bool(getattr(entry.logger, "is_append_only", False))


def read_sent(file: Path) -> dict[str, dict[str, Any]]:
    """Read loggers.json. A missing or damaged file only means that the run begins under a new id."""
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def cannot_begin(name: str, error: Exception) -> ClearformerError:
    if isinstance(error, ClearformerError):
        return error
    return MachineError(f"{name} cannot log this run: {reason(error)}", f"correct this, or omit {name}")


def reason(error: Exception) -> str:
    """Return the first line of an error, or its type if it has no message."""
    return f"{str(error).strip().partition(chr(10))[0]:.300}" or type(error).__name__


def library(module: str, extra: str) -> Any:
    """Import the library of a logger."""
    try:
        return import_module(module)
    except ImportError:
        raise MachineError(f"{extra} is not installed", f"pip install 'clearformer[{extra}]'") from None


def numbers(values: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Return the values that are numbers, by name."""
    kinds = {name: value for name, value in values.items() if isinstance(value, int | float)}
    return {f"{prefix}{name}": float(value) for name, value in kinds.items()}


def flat(tables: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables as one, with keys such as train.steps."""
    result: dict[str, Any] = {}
    for key, value in tables.items():
        result |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return result

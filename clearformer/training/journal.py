"""The log of a run: metrics.jsonl for programs, a progress bar for people, and the loggers of train.loggers.

metrics.jsonl has one JSON object per line. When a run is resumed, the lines after the step of the checkpoint are
removed, so that no step is missing or repeated. The sums of a `Meter` since the last line are saved with the
checkpoint, so that the next line is the same as without the interruption.
"""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearformer.checkpoint import write_text
from clearformer.errors import CheckpointError
from clearformer.notebook import NotebookBar, is_notebook
from clearformer.small_files import parse_json, read_small

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

Log = Callable[[int, str, Mapping[str, float]], None]  # step, "train" or "valid", metrics


@cache
def rich_console() -> "Console":
    """Return the console of this process. Only the first rank prints."""
    from rich.console import Console

    is_quiet = os.environ.get("RANK", "0") != "0"
    plain: dict[str, Any] = {"highlight": False, "markup": False, "soft_wrap": True, "force_jupyter": False}
    return Console(stderr=not is_notebook(), quiet=is_quiet, **plain)  # a notebook shows stderr as an error


class LazyConsole:
    """Stands for `rich_console()`, which imports rich at the first line that is printed. Inference prints none."""

    def __getattr__(self, name: str) -> Any:
        return getattr(rich_console(), name)


console: Any = LazyConsole()


@contextmanager
def silenced(is_silent: bool = True) -> Iterator[None]:
    """Print nothing and show no progress meanwhile, if `is_silent`."""
    before = rich_console().quiet
    rich_console().quiet = before or is_silent
    try:
        yield
    finally:
        rich_console().quiet = before


def progress_bar() -> "Progress | NotebookBar":
    """Return the progress bar of training, with the field `note` at its end, truncated at the edge of the terminal."""
    if is_notebook() and not rich_console().quiet:
        return NotebookBar("training")
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column

    return Progress(
        TextColumn("training"),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True, ratio=1)),
        console=rich_console(),
        expand=True,
        disable=not sys.stderr.isatty(),
        transient=True,
    )


class Journal:
    """`log` writes metrics.jsonl, `say` prints a line, `progress` and `note` update the progress bar.

    A quiet journal, on all ranks but the first, does nothing. `steps` is None if the number of steps is not known yet.
    `forward` receives what `log` does, and passes it on to other loggers.
    """

    def __init__(
        self, path: Path, steps: int | None, start: int = 0, is_quiet: bool = False, forward: Log | None = None
    ) -> None:
        self.is_quiet, self.forward = is_quiet, forward
        if is_quiet:
            return
        cut_back(path, start)
        self.file = open(path, "a", encoding="utf-8")  # noqa: SIM115
        self.bar: Any = progress_bar()
        self.task = self.bar.add_task("training", total=steps, completed=start, note="")
        self.bar.start()

    def log(self, step: int, kind: str, values: Mapping[str, float]) -> None:
        """One line of metrics.jsonl: {"step": …, "kind": "train" or "valid", …}."""
        if self.is_quiet:
            return
        self.file.write(json.dumps({"step": step, "kind": kind, **values}) + "\n")
        self.file.flush()
        if self.forward is not None:
            self.forward(step, kind, values)

    def progress(self, step: int, steps: float) -> None:
        """Update the progress bar; `steps` is the current estimate of the total."""
        if not self.is_quiet:
            self.bar.update(self.task, completed=step, total=round(steps))

    def note(self, text: str) -> None:
        """Set the text at the end of the progress bar."""
        if not self.is_quiet:
            self.bar.update(self.task, note=text)

    def say(self, text: str) -> None:
        if not self.is_quiet:
            console.print(text)

    def sync(self) -> None:
        """Flush the log to disk, before saving a checkpoint that relies on it."""
        if not self.is_quiet:
            os.fsync(self.file.fileno())

    def close(self) -> None:
        if not self.is_quiet:
            self.bar.stop()
            self.file.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records of metrics.jsonl, in which all values but `kind` are numbers."""
    records = read_records(path)
    for number, record in enumerate(records, 1):
        if not all(isinstance(value, int | float) for name, value in record.items() if name != "kind"):
            raise damaged(path, number)
    return records


def read_records(path: Path) -> list[dict[str, Any]]:
    """The records written so far, by step, without a last line that is still incomplete."""
    if not path.exists():
        return []
    records: list[dict[str, Any]] = []
    try:
        for line in read_small(path).split("\n")[:-1]:
            if line:
                record = parse_json(line)
                if not isinstance(record, dict) or not isinstance(record.get("step"), int):
                    raise ValueError
                records.append(record)
    except (OSError, ValueError):
        raise damaged(path, len(records) + 1) from None
    return records


def damaged(path: Path, number: int) -> CheckpointError:
    return CheckpointError(
        f"{path}: record {number:,} is not one of training", "remove its line, or copy the file again"
    )


def cut_back(path: Path, step: int) -> None:
    """Remove the records after `step`; these steps will be repeated and logged again."""
    records = [record for record in read_records(path) if record["step"] <= step]
    write_text(path, "".join(json.dumps(record) + "\n" for record in records))


class Meter:
    """Mean loss, mean gradient norm and speed since the last `read`. Only `stop` and `read` synchronise the device.

    `unit` is the unit of `tokens`: tokens, examples or images.
    """

    def __init__(self, device: torch.device, unit: str = "tokens", dtype: torch.dtype = torch.float32) -> None:
        self.sums = torch.zeros(2, device=device, dtype=dtype)  # loss over tokens, gradient norm over steps
        self.last = torch.zeros(2, device=device, dtype=dtype)  # the same of the last step
        self.unit = unit
        self.clear()
        self.start()

    def clear(self) -> None:
        self.sums.zero_()
        self.tokens, self.steps, self.seconds = 0, 0, 0.0

    def add(self, loss: Tensor, norm: Tensor, is_counted: Tensor | None = None) -> None:
        """Add one step: its loss summed over the tokens of all ranks, and its gradient norm before clipping.

        A step for which `is_counted` is false is not part of the means; `forget` removes its tokens.
        """
        step = torch.stack([loss, norm])
        self.sums += step if is_counted is None else torch.where(is_counted, step, 0.0)
        self.last.copy_(step)

    def count(self, tokens: int) -> None:
        self.tokens += tokens
        self.steps += 1

    def forget(self, tokens: int, steps: int) -> None:
        """Remove steps that were not counted from the means."""
        self.tokens, self.steps = self.tokens - tokens, self.steps - steps

    def start(self) -> None:
        self.since: float = time.monotonic()

    def stop(self) -> bool:
        """Stop the clock until `start`. Returns whether all losses and norms since the last `read` were finite."""
        is_finite = all(map(math.isfinite, self.sums.tolist()))
        self.seconds += time.monotonic() - self.since
        return is_finite

    def read(self) -> dict[str, float]:
        loss, norm = self.sums.tolist()
        speed = self.tokens / self.seconds
        values = {"loss": loss / self.tokens, "grad_norm": norm / self.steps, f"{self.unit}_per_s": speed}
        self.clear()
        return values

    def state(self) -> dict[str, Any]:
        """The sums as JSON values, exact to the last bit."""
        return {"sums": self.sums.tolist(), "tokens": self.tokens, "steps": self.steps, "seconds": self.seconds}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.sums.copy_(torch.tensor(state["sums"], dtype=self.sums.dtype))
        self.tokens, self.steps, self.seconds = state["tokens"], state["steps"], state["seconds"]

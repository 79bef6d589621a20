"""What a training says while it runs: metrics.jsonl for machines, a live line for people, TensorBoard if asked for.

Metrics are the record: one JSON object a line, whole lines only, cut back on resume to the step resumed from, so that
an interrupted run leaves neither a gap nor a repeat. What a `Meter` has added up since the last line is saved with the
checkpoint, so that the next line, too, is the one that would have been written without the interruption.
"""

import json
import math
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column
from torch import Tensor

from clearformer.checkpoint import write_text
from clearformer.errors import MachineError

# Of all ranks, the first talks.
console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True, quiet=os.environ.get("RANK", "0") != "0")


class Journal:
    """`log` records, `say` talks, `progress` and `note` keep the live line.

    A quiet journal (another rank) does none of it. `steps` is None where nobody knows yet how many there will be.
    """

    def __init__(
        self, path: Path, steps: int | None, start: int = 0, is_quiet: bool = False, tensorboard: bool = False
    ) -> None:
        self.is_quiet = is_quiet
        self.writer: Any = None
        if is_quiet:
            return
        cut_back(path, start)
        self.file = open(path, "a", encoding="utf-8")  # noqa: SIM115
        if tensorboard:
            self.writer = tensorboard_writer(path.parent / "tensorboard", start)
        self.bar = Progress(
            TextColumn("training"),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True, ratio=1)),  # cut where space ends
            console=console,
            expand=True,
            disable=not sys.stderr.isatty(),
            transient=True,
        )
        self.task = self.bar.add_task("training", total=steps, completed=start, note="")
        self.bar.start()

    def log(self, step: int, kind: str, values: Mapping[str, float]) -> None:
        """One line of metrics.jsonl: {"step": …, "kind": "train" or "valid", …}."""
        if self.is_quiet:
            return
        self.file.write(json.dumps({"step": step, "kind": kind, **values}) + "\n")
        self.file.flush()
        if self.writer is not None:
            for name, value in values.items():
                self.writer.add_scalar(f"{kind}/{name}", value, step)

    def progress(self, step: int, steps: float) -> None:
        """So far, of how many as far as can be told."""
        if not self.is_quiet:
            self.bar.update(self.task, completed=step, total=round(steps))

    def note(self, text: str) -> None:
        """What the live line ends with, until there is something new."""
        if not self.is_quiet:
            self.bar.update(self.task, note=text)

    def say(self, text: str) -> None:
        if not self.is_quiet:
            self.bar.console.print(text)

    def sync(self) -> None:
        """Have everything logged so far on disk, before a checkpoint that relies on it."""
        if not self.is_quiet:
            os.fsync(self.file.fileno())

    def close(self) -> None:
        if not self.is_quiet:
            self.bar.stop()
            self.file.close()
            if self.writer is not None:
                self.writer.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines written so far; a last line that is still being written is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1] if line]


def cut_back(path: Path, step: int) -> None:
    """Forget what was logged after `step`: it will be trained, and logged, again."""
    kept = [line for line in read_metrics(path) if line["step"] <= step]
    write_text(path, "".join(json.dumps(line) + "\n" for line in kept))


def tensorboard_writer(folder: Path, start: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MachineError("tensorboard is not installed", "pip install 'clearformer[tensorboard]'") from None
    return SummaryWriter(str(folder), purge_step=start + 1)


class Meter:
    """Mean loss and gradient norm, and speed, since the last reading. The device is waited for only when it stops.

    `unit` is what the tokens are called, where examples are counted instead.
    """

    def __init__(self, device: torch.device, unit: str = "tokens") -> None:
        self.sums = torch.zeros(2, device=device)  # of the loss over tokens, of the gradient's norm over steps
        self.unit = unit
        self.clear()
        self.start()

    def clear(self) -> None:
        self.sums.zero_()
        self.tokens, self.steps, self.seconds = 0, 0, 0.0

    def add(self, loss: Tensor, norm: Tensor, tokens: int) -> None:
        """One step: its loss summed over the tokens of all ranks, its gradient's norm before clipping."""
        self.sums += torch.stack([loss, norm])
        self.tokens += tokens
        self.steps += 1

    def start(self) -> None:
        self.since: float = time.monotonic()

    def stop(self) -> bool:
        """Leave what follows, until `start`, out of the speed. Returns whether losses and norms were finite so far."""
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
        """As JSON can say it, to the last bit."""
        return {"sums": self.sums.tolist(), "tokens": self.tokens, "steps": self.steps, "seconds": self.seconds}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.sums.copy_(torch.tensor(state["sums"]))
        self.tokens, self.steps, self.seconds = state["tokens"], state["steps"], state["seconds"]

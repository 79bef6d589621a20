"""What a training says while it runs: metrics.jsonl for machines, a live line for people, TensorBoard if installed.

Metrics are the record: one JSON object a line, whole lines only, cut back on resume to the step resumed from, so that
an interrupted run leaves neither a gap nor a repeat.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

console = Console(stderr=True, highlight=False)


class Journal:
    """`log` records, `say` talks, `progress` moves the live line. A quiet journal (another rank) does none of it."""

    def __init__(
        self, path: Path, steps: int, start: int = 0, is_quiet: bool = False, tensorboard: bool = False
    ) -> None:
        self.path, self.steps, self.is_quiet = path, steps, is_quiet
        self.started = time.monotonic()
        self.writer: Any = None
        if is_quiet:
            return
        cut_back(path, start)
        self.file = open(path, "a", encoding="utf-8")  # noqa: SIM115
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(str(path.parent / "tensorboard"), purge_step=start + 1)
        self.bar = Progress(
            TextColumn("training"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
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

    def progress(self, step: int, note: str) -> None:
        if not self.is_quiet:
            self.bar.update(self.task, completed=step, note=note)

    def say(self, text: str) -> None:
        if not self.is_quiet:
            self.bar.console.print(text, markup=False)

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
    draft = path.with_name(f".{path.name}")
    draft.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
    os.replace(draft, path)

"""What every measurement is given, and how a measurement is repeated."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

WORKER = (sys.executable, "-m", "clearformer.speed.worker")


@dataclass(frozen=True)
class Context:
    """The circumstances of one measurement, as JSON values, because it crosses processes.

    `work` is the temporary folder of the whole benchmark, `row` and `turn` identify the measurement, `data` is the
    folder of real corpora and `nanogpt` a checkout of nanoGPT, both optional.
    """

    work: str
    row: str
    turn: int
    device: str
    threads: int
    is_quick: bool
    data: str | None = None
    nanogpt: str | None = None

    @property
    def seconds(self) -> float:
        """Seconds of timing after the warm-up."""
        return 3.0 if self.is_quick else 10.0

    @property
    def warm_up(self) -> float:
        """Seconds of training before its speed counts: caches fill, shapes are compiled or recorded."""
        return 3.0 if self.is_quick else 8.0

    def folder(self, *parts: str) -> Path:
        """A folder inside `work`. Its parent exists; it does not have to."""
        path = Path(self.work, *parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    @property
    def run(self) -> Path:
        """The run folder of our side, whose batches the peers of the row read."""
        return self.folder("runs", self.row, str(self.turn))

    @property
    def batches(self) -> Path:
        """The file with the batches that our side trained on; see batches.py."""
        return self.folder("batches", f"{self.row}.safetensors")

    def call(self, function: str, **options: Any) -> Any:
        """Run a function in another process, and return its result."""
        command = [*WORKER, json.dumps({"call": function, "context": asdict(self), "options": options})]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        return json.loads(done.stdout.splitlines()[-1])


def environment(threads: int) -> dict[str, str]:
    """The environment of a process that may use this number of threads."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    return {**os.environ, **dict.fromkeys(names, str(threads)), "TOKENIZERS_PARALLELISM": "true"}


def set_threads(context: Context) -> None:
    """Give torch the threads of the measurement; on a GPU it keeps its default."""
    if context.device == "cpu":
        import torch

        torch.set_num_threads(context.threads)


def synchronize(device: str) -> None:
    """Wait for the GPU, if it is the device."""
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def rates(work: Callable[[], object], amount: float, context: Context) -> list[float]:
    """Amount per second of each call of `work`: two or three calls at least, fifty at most, after a warm-up of two.

    A single call of two seconds is warm-up enough.
    """
    results: list[float] = []
    begun = time.perf_counter()
    work()
    if time.perf_counter() - begun < 2.0:
        work()
    least, begun = 2 if context.is_quick else 3, time.perf_counter()
    while len(results) < least or (time.perf_counter() - begun < context.seconds and len(results) < 50):
        synchronize(context.device)
        start = time.perf_counter()
        work()
        synchronize(context.device)
        results.append(amount / (time.perf_counter() - start))
    return results


def training_rates(step: Callable[[int], int], context: Context, n_warm: int) -> list[float]:
    """Tokens per second of a training loop. step(i) trains on batch i and returns the number of its target tokens.

    The warm-up has `n_warm` steps, and lasts as long as ours; then five periods of equal length are timed.
    """
    i, begun = 0, time.perf_counter()
    while i < n_warm or time.perf_counter() - begun < context.warm_up:
        step(i)
        i += 1
        if i % 8 == 0:
            synchronize(context.device)
    synchronize(context.device)
    results, group = [], 4 if context.device == "cuda" else 1  # steps between looks at the clock
    for _ in range(5):
        n_tokens, start = 0, time.perf_counter()
        while n_tokens == 0 or time.perf_counter() - start < context.seconds / 5:
            for _ in range(group):
                n_tokens += step(i)
                i += 1
            synchronize(context.device)
        results.append(n_tokens / (time.perf_counter() - start))
    return results


def seconds_of(command: list[str], context: Context) -> list[float]:
    """Seconds of each run of a command, after one run that fills the caches of the file system."""
    times = []
    for _ in range(4 if context.is_quick else 6):
        begun = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - begun)
    return times[1:]


def summary(values: list[float]) -> dict[str, Any]:
    """The median and the range of repeated measurements, to four digits."""
    shown = [float(f"{value:.4g}") for value in values]
    return {"median": float(f"{statistics.median(values):.4g}"), "range": [min(shown), max(shown)], "values": shown}

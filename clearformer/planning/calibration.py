"""What this machine reaches: rates, and the time that Python needs around an operation. Measured once, then kept.

$CLEARFORMER_CACHE/plan, else $XDG_CACHE_HOME/clearformer/plan, else ~/.cache/clearformer/plan
└── <key>.json          ceilings          key: processor or GPU, threads and version of torch
    <key>.costs.json    seconds and scratch memory of each operation that a plan has measured
"""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from clearformer.checkpoint import cpu_name, write_json
from clearformer.data.batch import Batch, ImageBatch, TextBatch
from clearformer.generation.engine_cache import cache_folder, key_of
from clearformer.memory import machine_bytes, resident_mb, return_freed_memory
from clearformer.planning.clocks import Roofline, Stopwatch
from clearformer.planning.devices import Device
from clearformer.planning.rehearsal import build_trainer, rehearse
from clearformer.recipe import Recipe
from clearformer.speed.ceilings import measure
from clearformer.speed.context import Context
from clearformer.training.journal import console

TINY = {"kind": "transformer", "d_model": 8, "d_ff": 8, "n_heads": 1, "source_vocab": 16, "target_vocab": 16}
TINY_LSTM = {"kind": "rnn-lm", "d_model": 8, "n_layers": 1, "vocab": 16}
TINY_RESNET = {"kind": "resnet", "preset": "resnet20", "size": 8, "n_classes": 2}
RATES = ("memory_gb_per_s", "matmul_tflops")
N_STEPS = 20  # of the tiny model


def stopwatch(kind: str) -> Stopwatch:
    """Return the clock of this machine, for "cpu" or "cuda". The first call takes a few seconds."""
    name = torch.cuda.get_device_name() if kind == "cuda" else cpu_name()
    facts = {"device": name, "threads": torch.get_num_threads(), "torch": torch.__version__, "format": 3}
    folder, key = cache_folder().parent / "plan", key_of(facts)
    path = folder / f"{key}.json"
    ceilings = read(path)
    if ceilings is None:
        with console.status("measuring this machine, once"):
            ceilings = calibrate(kind)
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            write_json(path, {**facts, **ceilings})
    memory = torch.cuda.get_device_properties(0).total_memory if kind == "cuda" else machine_bytes()
    rates = {key: ceilings[key] for key in RATES}
    device = Device(
        kind, str(name), memory / 1e9, **rates, launch_us=ceilings["dispatch_us"], process_mb=ceilings["process_mb"]
    )
    return Stopwatch(Roofline(device), folder / f"{key}.costs.json", ceilings["overhead_us"] * 1e-6)


def read(path: Path) -> dict[str, Any] | None:
    try:
        ceilings = json.loads(path.read_text(encoding="utf-8"))
        return ceilings if {*RATES, "dispatch_us", "overhead_us", "process_mb"} <= set(ceilings) else None
    except (OSError, ValueError, TypeError):
        return None


def calibrate(kind: str) -> dict[str, Any]:
    """Measure matrix products, memory and small operations (speed/ceilings.py), and a training of a tiny model."""
    threads = torch.get_num_threads()
    ceilings = measure(Context(os.devnull, "plan", 0, kind, threads, is_quick=True))
    device = Device(kind, "", 1.0, ceilings["memory_gb_per_s"], ceilings["matmul_tflops"], ceilings["dispatch_us"])
    ceilings["process_mb"] = process_mb()
    return {**ceilings, "overhead_us": float(f"{overhead(Stopwatch(Roofline(device))) * 1e6:.3g}")}


def process_mb() -> float:
    """The memory of a process that has trained tiny models: Python, torch, and the kernels that torch loads.

    Measured in a process of its own, since this one has also planned.
    """
    code = "from clearformer.planning.calibration import occupied_mb; print(occupied_mb())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folder or os.getcwd() for folder in sys.path)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return round(float(done.stdout.splitlines()[-1]), 1)


def occupied_mb() -> float:
    """Train a tiny model of each kind, return freed memory to the system, and return what is left."""
    batches = (Batch.blank(64, 64), TextBatch.blank(64, 64), ImageBatch.blank(64, 8, 3))
    for model, batch in zip((TINY, TINY_LSTM, TINY_RESNET), batches):
        trainer = build_trainer(tiny_recipe(model), torch.device("cpu"))
        for _ in range(3):
            trainer.step([batch], batch.n_tokens)
    del trainer
    return settled_mb()


def tiny_recipe(model: dict[str, Any]) -> Recipe:
    return Recipe.parse({"data": {"train": {"path": "none"}}, "model": model}, "calibration")


def settled_mb() -> float:
    """The memory of this process after freed memory has been returned to the system."""
    return_freed_memory()
    return resident_mb()


def overhead(watch: Stopwatch) -> float:
    """Seconds that Python, autograd and the trainer need per operation, beyond the operation itself.

    The tensors of a tiny model are so small that its step consists of little else.
    """
    recipe, batch = tiny_recipe(TINY), Batch.blank(2, 4)
    step = rehearse(recipe, [([batch], 8)]).steps[0]
    trainer = build_trainer(recipe, watch.device)
    batch, times = batch.to(watch.device), []
    for _ in range(N_STEPS):
        begun = time.perf_counter()
        trainer.step([batch], 8)
        watch.synchronize()
        times.append(time.perf_counter() - begun)
    n = step.n_views + sum(n for _, n in step.calls)
    return max(0.0, (min(times) - watch.step(step)) / n)

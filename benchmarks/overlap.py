"""Seconds per step if gradients are summed after the backward pass, and inside it.

    torchrun --nproc-per-node 2 benchmarks/overlap.py --folder FOLDER --width 512 --layers 6 --device cpu

Trains a GPT on random text in all processes, in turns with both, and records in results/overlap-DEVICE.json, or --out:
the median step of each, their ratio, the share of buckets whose sum begins before the backward pass ends, and whether
the weights of both have the same bits. FOLDER is new; it remains.
"""

import argparse
import os
import random
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from provenance import RESULTS, record, stamp

import clearformer
from clearformer.checkpoint import load_tensors

SIZES = {"width": 512, "layers": 6, "tokens": 512, "accumulation": 1, "steps": 16, "rounds": 3}
WARM_UP = 3  # steps that are not timed


def settings(given: argparse.Namespace) -> list[str]:
    n = given.steps
    model = [f"model.d_model={given.width}", f"model.n_layers={given.layers}", f"model.n_heads={given.width // 64}"]
    model += [f"model.d_ff={4 * given.width}", f"train.tokens={given.tokens}", "model.dropout=0.1", "text.kind=char"]
    model += [f"train.accumulation={given.accumulation}", "train.ema=0"]
    return [*model, f"train.steps={n + 1}", f"train.save_every={n + 1}", f"train.validate_every={n + 1}"]


def run(given: argparse.Namespace, folder: Path, name: str, is_inside: bool) -> dict[str, Any]:
    """Train, and return the seconds of each step, and how many sums have begun when its backward pass ends."""
    session = clearformer.start_run(
        text=given.folder / "text.txt", out=folder / name, device=given.device, settings=settings(given)
    )
    trainer, steps, begun = session.trainer, [], []
    finish = trainer.sums.finish

    def counted() -> None:
        begun.append(trainer.sums.n_begun)
        finish()

    trainer.sums.finish = counted  # type: ignore[method-assign]
    if not is_inside:
        trainer.splitter.begin_last = lambda: None
    before = time.perf_counter()
    for step in session:
        float(step.loss)  # waits for the device
        steps.append(time.perf_counter() - before)
        if step.number == given.steps:
            break
        before = time.perf_counter()
    n_parameters, n_buckets = sum(p.numel() for p in trainer.parameters), len(trainer.sums.buckets)
    session.close()
    return {"steps": steps, "begun": begun, "parameters": n_parameters, "buckets": n_buckets}


def write_text(folder: Path, n: int) -> None:
    """Write lines of random text, whole or not at all."""
    folder.mkdir(parents=True)
    draw, draft = random.Random(0), folder / "draft.txt"
    draft.write_text("\n".join("".join(draw.choices("abcdefgh     ", k=80)) for _ in range(n)))
    draft.rename(folder / "text.txt")


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    for name, value in SIZES.items():
        reader.add_argument(f"--{name}", type=int, default=value)
    reader.add_argument("--device", default="cpu")
    reader.add_argument("--folder", type=Path, required=True, help="where to write; all processes share it")
    reader.add_argument("--out", type=Path)
    given = reader.parse_args()
    folder, is_first = given.folder, os.environ.get("RANK", "0") == "0"
    if is_first:
        write_text(folder, given.steps * given.tokens * given.accumulation // 10)
    while not (folder / "text.txt").exists():
        time.sleep(0.1)
    runs: dict[str, list[dict[str, Any]]] = {"after": [], "inside": []}
    for turn in range(given.rounds):
        for how, some in runs.items():
            some.append(run(given, folder, f"{how}-{turn}", how == "inside"))
    if not is_first:
        return
    seconds = {how: median(s for one in some for s in one["steps"][WARM_UP:]) for how, some in runs.items()}
    weights = [load_tensors(folder / f"{how}-0" / "last.safetensors")[0] for how in runs]
    inside = runs["inside"][0]
    n = int(os.environ.get("WORLD_SIZE", 1))
    command = f"torchrun --nproc-per-node {n} benchmarks/overlap.py --folder FOLDER --device {given.device}"
    sizes = {name: vars(given)[name] for name in SIZES}
    command += "".join(f" --{name} {value}" for name, value in sizes.items())
    result = {
        "device": given.device,
        "processes": n,
        **sizes,
        "parameters": inside["parameters"],
        "buckets": inside["buckets"],
        "begun_inside": median(inside["begun"][1:]) / inside["buckets"],
        "after_seconds": seconds["after"],
        "inside_seconds": seconds["inside"],
        "inside_by_after": seconds["inside"] / seconds["after"],
        "has_same_weights": all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0]),
    }
    record({**result, **stamp(command)}, given.out or RESULTS / f"overlap-{given.device}.json")


if __name__ == "__main__":
    main()

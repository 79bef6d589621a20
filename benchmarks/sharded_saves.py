"""How long training stops for a sharded save.

    torchrun --nproc-per-node 2 benchmarks/sharded_saves.py --folder FOLDER --width 384 --layers 6 --device cpu

Trains a GPT on random text in all processes, first without saves and then with one at every fifth step, and records in
results/sharded-saves-DEVICE.json, or --out: the median step, how long the thread of training is in a save, how much
longer a step with a save and the step after it take, as fractions of a step, and the seconds until a checkpoint is
complete. FOLDER is new; it remains.
"""

import argparse
import os
import random
import time
from pathlib import Path
from statistics import mean, median
from typing import Any

from provenance import RESULTS, record, stamp

import clearformer

PERIOD = 5  # steps between saves
SIZES = {"width": 384, "layers": 6, "tokens": 1024, "steps": 32}


def settings(given: argparse.Namespace, save_every: int) -> list[str]:
    n = given.steps
    model = [f"model.d_model={given.width}", f"model.n_layers={given.layers}", f"model.n_heads={given.width // 64}"]
    model += [f"model.d_ff={4 * given.width}", f"train.tokens={given.tokens}", "train.parallel=shard"]
    return [*model, f"train.steps={n}", f"train.save_every={save_every}", f"train.validate_every={n}", "text.kind=char"]


def run(given: argparse.Namespace, folder: Path, name: str, save_every: int) -> dict[str, Any]:
    """Train, and return the seconds of each step, inside its save, and until its checkpoint is complete."""
    text = folder / "text.txt"
    session = clearformer.start_run(
        text=text, out=folder / name, device=given.device, settings=settings(given, save_every)
    )
    trainer, steps, inside, complete = session.trainer, [], [], []
    begin_save = trainer.begin_save

    def timed() -> None:
        begun = time.perf_counter()
        begin_save()
        inside.append(time.perf_counter() - begun)

    trainer.begin_save = timed  # type: ignore[method-assign]
    begun = time.perf_counter()
    for step in session:
        float(step.loss)  # waits for the device
        steps.append(time.perf_counter() - begun)
        if step.number == given.steps - 2 and save_every < given.steps:
            trainer.wait_for_saves()  # one may be due at this step
            again = time.perf_counter()
            trainer.save()
            complete.append(time.perf_counter() - again)
        if step.number == given.steps - 1:
            break
        begun = time.perf_counter()
    n_parameters = sum(p.numel() for p in trainer.model.parameters())
    session.close()
    return {"steps": steps, "inside": inside[: given.steps // PERIOD], "complete": complete, "parameters": n_parameters}


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
    folder = given.folder
    if os.environ.get("RANK", "0") == "0":
        write_text(folder, given.steps * given.tokens // 30)
    while not (folder / "text.txt").exists():
        time.sleep(0.1)
    plain = run(given, folder, "plain", 10**6)
    saved = run(given, folder, "saved", PERIOD)
    if os.environ.get("RANK", "0") != "0":
        return
    step = median(plain["steps"][3:])
    numbered = list(enumerate(saved["steps"], 1))[PERIOD + 1 :]  # the first save allocates its buffers
    at = [seconds for number, seconds in numbered if number % PERIOD == 0]
    after = [seconds for number, seconds in numbered if number % PERIOD == 1]
    others = [seconds for number, seconds in numbered if number % PERIOD > 1]
    n = int(os.environ.get("WORLD_SIZE", 1))
    command = f"torchrun --nproc-per-node {n} benchmarks/sharded_saves.py --folder FOLDER --device {given.device}"
    sizes = {name: vars(given)[name] for name in SIZES}
    command += "".join(f" --{name} {value}" for name, value in sizes.items())
    result = {
        "device": given.device,
        "processes": n,
        **sizes,
        "parameters": plain["parameters"],
        "step_seconds": step,
        "save_seconds": median(saved["inside"][1:]),
        "first_save_seconds": saved["inside"][0],
        "stall": median(saved["inside"][1:]) / step,
        "step_with_save": mean(at) / median(others) - 1,
        "step_after": mean(after) / median(others) - 1,
        "complete_seconds": saved["complete"][0],
    }
    record({**result, **stamp(command)}, given.out or RESULTS / f"sharded-saves-{given.device}.json")


if __name__ == "__main__":
    main()

"""`clearformer plan` against the real `clearformer train`: peak memory and seconds per step of seven models.

    python benchmarks/plan_accuracy.py [--device cuda] [--only gpt] [--steps 16] [--trainings 3]

The corpora are generated: pairs of the bundled grammar, random words by Zipf's law, random images. Each model is
planned in one process and trained in others, by the command line, whose trainer is observed from outside:

peak       on the CPU: the peak resident memory of the process during its steps, and `peak_mb` of the plan. The holes of
           two trainings differ: the most of all trainings counts
memory     on the CPU: the same, less what the process occupied just before the model was built, so that Python, torch
           and the libraries do not hide the error. Before, tiny models are trained, whose kernels are then in memory,
           and freed memory is returned to the system. The plan's figure is that of all parts but `process`. On CUDA:
           the peak of torch's allocator, in tensors (measured_mb) and in what it has taken from the device for them
           (reserved_mb); tensors have no part `allocator`
time       the mean of all steps but the first four, validation and saving excluded; the median of all trainings

With --only, the other models stay in the file as they are. Each has the commit that it was measured with.

An error is (planned − measured) / measured. Bars: memory within 10 %, never more than 2 % below; time within 20 %.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from provenance import RESULTS, record, stamp

WARM = 4  # steps that do not count
PAIRS, WORDS, IMAGES = ("--pairs", "pairs.tsv"), ("--text", "words.txt"), ("--images", "images.npz")
GPT = ("--set", "model.max_length=256", "--set", "train.tokens=1024", "--set", "text.vocab_size=8000")
CASES = {
    "translator, tiny": (*PAIRS, "--model", "transformer-tiny", "--set", "train.tokens=4096"),
    "translator, base": (*PAIRS, "--model", "transformer-base", "--set", "train.tokens=1024"),
    "gpt": (*WORDS, "--model", "gpt2", "--set", "model.n_layers=6", *GPT),
    "bert": (*WORDS, "--model", "bert-base", "--set", "model.n_layers=4", "--set", "train.tokens=2048"),
    "lstm": (*WORDS, "--model", "lstm-ptb-medium", "--set", "train.tokens=1400"),
    "resnet": (*IMAGES, "--model", "resnet18-small", "--set", "train.tokens=64"),
    "vit": (*IMAGES, "--model", "vit", "--set", "train.tokens=64"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only", nargs="*", default=list(CASES), help="names of models")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--trainings", type=int, default=3, help="of each model")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--observed", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.observed:
        observe(*options.observed)
        return
    rows = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpora(folder)
        os.environ["CLEARFORMER_CACHE"] = str(folder / "cache")  # nothing measured earlier
        for case in options.only:
            rows[case] = compare(case, folder, options.device, options.steps, options.trainings)
            print(case, json.dumps(rows[case]), flush=True)
    shown = f"python benchmarks/plan_accuracy.py --device {options.device}"
    out = options.out or RESULTS / f"plan-accuracy-{options.device}.json"
    stamped = stamp(shown)
    record({"device": options.device, "models": merged(out, rows, stamped), **stamped}, out)


def merged(out, rows, stamped):
    """The models of a result file, in the order of CASES, of which `rows` were measured again."""
    before = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    marks = {key: before.get(key) for key in ("commit", "date")}
    rows = {case: {**row, "commit": stamped["commit"], "date": stamped["date"]} for case, row in rows.items()}
    models = {case: {**marks, **row} for case, row in before.get("models", {}).items()} | rows
    return {case: models[case] for case in (*CASES, *(case for case in models if case not in CASES)) if case in models}


def compare(case, folder, device, steps, n_trainings):
    arguments = [*CASES[case], "--device", device]
    begun = time.monotonic()
    command = [sys.executable, "-m", "clearformer", "plan", *arguments, "--json"]
    plan = json.loads(subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout)
    planning = time.monotonic() - begun
    real = [train(folder / f"run-{case.replace(', ', '-')}-{i}", folder, steps, arguments) for i in range(n_trainings)]
    seconds = statistics.median(facts["seconds"] for facts in real)
    return {
        "parameters": plan["parameters"],
        **memory(plan, real),
        "planned_s": plan["seconds_per_step"],
        "measured_s": round(seconds, 4),
        "time_error": round(plan["seconds_per_step"] / seconds - 1, 3),
        "seconds_to_plan": round(planning, 1),
        "memory_mb": plan["memory_mb"],
    }


def train(run, folder, steps, arguments):
    command = [sys.executable, __file__, "--observed", str(steps), str(run), *arguments]
    done = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    shutil.rmtree(run)
    return json.loads(done.stdout.splitlines()[-1])


def memory(plan, real):
    """Planned and measured megabytes, the most of all trainings."""
    most = {key: max(facts[key] for facts in real) for key in real[0]}
    parts, planned = plan["memory_mb"], plan["peak_mb"] - plan["memory_mb"]["process"]
    if "reserved_mb" not in most:
        rows = {"peak": (plan["peak_mb"], most["peak_mb"]), "memory": (planned, most["mb"])}
        more = {"trainings_mb": [round(facts["mb"], 1) for facts in real]}
    else:
        rows = {"memory": (planned - parts["allocator"], most["mb"]), "reserved": (planned, most["reserved_mb"])}
        more = {}
    named = {"memory": ("planned_mb", "measured_mb")}
    result = {}
    for name, (ours, theirs) in rows.items():
        first, second = named.get(name, (f"planned_{name}_mb", f"{name}_mb"))
        result |= {first: round(ours, 1), second: round(theirs, 1), f"{name}_error": round(ours / theirs - 1, 3)}
    return result | more


def observe(steps, run, *arguments):
    """Run the train command in this process up to a number of steps, and print what it needed."""
    import torch

    from clearformer import fit
    from clearformer.cli import app
    from clearformer.planning.calibration import occupied_mb
    from clearformer.training.loop import Trainer

    before, times, build = [], [], fit.build_model
    is_cuda = "cuda" in arguments

    def build_model(config):
        fit.build_model = build
        before.append(occupied_mb())
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again
        return build(config)

    def complete_step(trainer):
        if is_cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter())
        if len(times) == int(steps):
            seconds = (times[-1] - times[WARM - 1]) / (len(times) - WARM)
            mb = torch.cuda.max_memory_allocated() / 1e6 if is_cuda else resident("VmHWM") - before[0]
            facts = {"mb": mb, "peak_mb": resident("VmHWM"), "seconds": seconds}
            if is_cuda:
                facts["reserved_mb"] = torch.cuda.max_memory_reserved() / 1e6
            print(json.dumps(facts), flush=True)
            os._exit(0)
        return False

    fit.build_model, Trainer.complete_step = build_model, complete_step
    app(["train", *arguments, "--steps", "1000", "--out", run])


def resident(key):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) * 1024 / 1e6


def write_corpora(folder):
    from clearformer.bundled.corpus import generate
    from clearformer.speed.corpora import draw, vocabulary

    (folder / "pairs.tsv").write_text("".join(f"{pair.english}\t{pair.hindi}\n" for pair in generate(12_000)))
    rng = np.random.default_rng(0)
    words = draw(rng, vocabulary(rng, 9000), 200_000)
    lines = (" ".join(words[at : at + 20]) for at in range(0, len(words), 20))
    (folder / "words.txt").write_text("\n".join(lines) + "\n")
    pixels, classes = rng.integers(0, 256, (1500, 32, 32, 3), "uint8"), rng.integers(0, 10, 1500)
    np.savez(folder / "images.npz", images=pixels, labels=classes)


if __name__ == "__main__":
    main()

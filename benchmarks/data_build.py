"""Time and memory to prepare pairs: `clearformer data build` against the preparation of `clearformer train`.

    python benchmarks/data_build.py --data ../shared/data [--pairs 1000000] [--resume-pairs 10000000]

The corpus and the measurement of `train` are those of preparation.py. `train` reads the corpus twice, because it
chooses its settings from the whole, and learns its vocabulary from a million lines; `data build` reads it once, and
learns from 200,000 pairs. Both use all cores. `extrapolated` has seconds for ten million pairs, computed and not
measured: start and vocabulary take the same time for every large corpus, the rest grows with it.

`resume` is the time from the start of `clearformer train --resume` to its first step, at the beginning and at the end
of an epoch of a folder with the lengths of `--resume-pairs` pairs (drawn, one token id everywhere), with a tiny model.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from preparation import measure, resident_mb, summary, write_pairs
from provenance import RESULTS, record, stamp

ROOT = Path(__file__).parent.parent
TINY = ["model.n_encoder_layers=1", "model.n_decoder_layers=1", "model.d_model=8", "model.d_ff=8", "model.n_heads=1"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the corpora")
    parser.add_argument("--pairs", type=int, default=1_000_000, help="number of pairs")
    parser.add_argument("--resume-pairs", type=int, default=10_000_000)
    parser.add_argument("--out", type=Path, default=RESULTS / "data-build.json")
    parser.add_argument("--first-step", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.first_step:
        first_step(*options.first_step)
        return
    n = options.pairs
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = folder / "pairs.tsv"
        write_pairs(options.data, corpus, n)
        built = build(corpus, folder / "built")
        print("build", json.dumps(built), flush=True)
        old = summary([measure(ROOT, corpus, folder / "run")], n)
        print("train", json.dumps(old), flush=True)
        resumed = resume_times(folder, options.resume_pairs)
    result = {"pairs": n, "cpus": len(os.sched_getaffinity(0)), "train": old, "build": built}
    result["ratio_of_seconds"] = round(old["seconds"] / built["seconds"], 2)
    result["extrapolated"] = extrapolated(old, built, n)
    result["resume"] = {"pairs": options.resume_pairs, **resumed}
    record({**result, **stamp(f"python benchmarks/data_build.py --pairs {n}")}, options.out)


def extrapolated(old, built, n):
    """Seconds for ten million pairs: the stages that grow with the corpus, by ten million over n."""
    growth = 10_000_000 / n
    stages = {name: seconds * n / 1e6 for name, seconds in old["seconds_per_million"].items()}
    train = sum(seconds * (1 if name in ("start", "learn") else growth) for name, seconds in stages.items())
    build = built["seconds_to_learn"] + (built["seconds"] - built["seconds_to_learn"]) * growth
    return {"pairs": 10_000_000, "train_seconds": round(train), "build_seconds": round(build)}


def build(corpus, out):
    """Build a folder: seconds, cores and the largest memory of all processes together."""
    command = [sys.executable, "-m", "clearformer", "data", "build", "--pairs", str(corpus), "--out", str(out)]
    begun, used, peak, learnt = time.monotonic(), os.times(), 0.0, None
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    while process.poll() is None:
        peak = max(peak, resident_mb(process.pid))
        if learnt is None and (out / "tokenizer.json").exists():
            learnt = time.monotonic() - begun
        time.sleep(0.2)
    if process.returncode:
        sys.exit(f"data build failed with exit code {process.returncode}")
    seconds, after = time.monotonic() - begun, os.times()
    cpu = after.children_user + after.children_system - used.children_user - used.children_system
    return {
        "seconds": round(seconds, 1),
        "seconds_to_learn": round(learnt or seconds, 1),
        "cores": round(cpu / seconds, 2),
        "peak_mb": round(peak),
        "folder_mb": round(sum(path.stat().st_size for path in out.iterdir()) / 1e6),
    }


def resume_times(folder, n_pairs):
    """Seconds from the start of the command to the first step after a pause, near the start and the end of an epoch."""
    built, corpus = folder / "large", folder / "few.tsv"
    corpus.write_text("".join(f"a b {i}\tc d {i}\n" for i in range(2000)))
    build(corpus, built)
    enlarge(built, n_pairs)
    settings = [part for setting in TINY for part in ("--set", setting)]
    run = folder / "resumed"
    train = [sys.executable, "-m", "clearformer", "train"]
    begin = [
        *train,
        "--pairs",
        str(built),
        "--out",
        str(run),
        "--steps",
        "1000000",
        "--set",
        "train.pause=1",
        *settings,
    ]
    subprocess.run([*begin, "--device", "cpu", "--set", "train.tokens=4096"], check=True, cwd=ROOT)
    times = {"start_of_epoch": timed(run)}
    move_to_end(run)
    times["end_of_epoch"] = timed(run)
    return times


def timed(run):
    begun = time.monotonic()
    command = [sys.executable, __file__, "--first-step", str(run), str(begun)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    return round(float(done.stdout.splitlines()[-1]), 2)


def first_step(run, begun):
    """Resume a run, and print the seconds since `begun` when its first step is done."""
    from clearformer.cli import app
    from clearformer.training.loop import Trainer

    def complete_step(trainer):
        print(time.monotonic() - float(begun), flush=True)
        os._exit(0)

    Trainer.complete_step = complete_step
    app(["train", "--resume", "--out", run, "--set", "train.pause=1000000"])


def enlarge(built, n_pairs):
    """Replace the shards by larger ones with drawn lengths, whose ids are all the same."""
    from clearformer.data.built.folder import INDEX, Shard, read_index
    from clearformer.data.built.pairs import write_lengths
    from clearformer.data.built.pieces import SHARD_ROWS
    from clearformer.data.store import Ragged, StoreWriter

    rng, shards = np.random.default_rng(0), []
    index = read_index(built)
    for number in range(-(-n_pairs // SHARD_ROWS)):
        rows, name = min(SHARD_ROWS, n_pairs - number * SHARD_ROWS), f"train-{number:05d}"
        lengths = np.clip(rng.lognormal(2.7, 0.6, (rows, 2)), 1, 200).astype("int64")
        with StoreWriter(built / f"{name}.safetensors", 1000) as writer:
            writer.add_packed(*(Ragged(np.full(side.sum(), 5, "uint16"), side) for side in lengths.T))
        shards.append(Shard(name, rows, tuple(lengths.sum(0).tolist())))
    write_lengths(built, shards)
    facts = {**index.dump(), "shards": [{"name": s.name, "rows": s.rows, "tokens": s.tokens} for s in shards]}
    (built / INDEX).write_text(json.dumps(facts))


def move_to_end(run):
    """Let the checkpoint say that the run is near the end of its first epoch."""
    from clearformer.checkpoint import load_tensors, save_tensors
    from clearformer.data.built.order import ShardedBatches
    from clearformer.data.built.stores import open_pairs

    store = open_pairs(run / "data" / "train.safetensors")
    n = int(ShardedBatches(store.lengths, store.shards.edges, 4096).counts.sum())
    tensors, facts = load_tensors(run / "last.safetensors")
    facts["progress"]["position"] = n - 10
    save_tensors(run / "last.safetensors", tensors, facts)


if __name__ == "__main__":
    main()

"""Time and memory to prepare pairs: `clearformer data build` against the preparation of `clearformer train`.

    python benchmarks/data_build.py --data ../shared/data [--pairs 10000000] [--against ../before]
    python benchmarks/data_build.py --only resume_text [--resume-tokens 1000000000]

The corpus and the measurement of `train` are those of preparation.py. `train` reads the corpus twice, because it
chooses its settings from the whole, and learns its vocabulary from a million lines; `data build` reads it once, and
learns from 200,000 pairs. Both use all cores. With --against, `train` of another checkout prepares the corpus, too:
`before`. `extrapolated` has seconds for ten million pairs, computed and not measured, if fewer are prepared: start and
vocabulary take the same time for every large corpus, the rest grows with it.

`resume` is the time from the start of `clearformer train --resume` to its first step, at the beginning and at the end
of an epoch of a folder with the lengths of `--resume-pairs` pairs (drawn, one token id everywhere), with a tiny model.
`resume_text` is the same for a text of `--resume-tokens` tokens, read in windows by a GPT and in streams by an LSTM;
`peak_mb` is the largest memory of that process, the pages of shards that it has read included.

`--only` measures one of `resume` and `resume_text`, and leaves the rest of the result file as it was.
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
from process_tree import memory_mb
from provenance import RESULTS, record, stamp

ROOT = Path(__file__).parent.parent
TINY = ["model.n_encoder_layers=1", "model.n_decoder_layers=1", "model.d_model=8", "model.d_ff=8", "model.n_heads=1"]
TINY_TEXT = {
    "gpt": ["model.n_layers=1", "model.d_model=8", "model.d_ff=8", "model.n_heads=1", "model.max_length=256"],
    "lstm": ["model.n_layers=1", "model.d_model=8"],
}
TOKENS = 4096  # of a step
SHARD_TOKENS = 2**23
TEN_MILLION = 10_000_000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the corpora")
    parser.add_argument("--pairs", type=int, default=1_000_000, help="number of pairs")
    parser.add_argument("--resume-pairs", type=int, default=TEN_MILLION)
    parser.add_argument("--resume-tokens", type=int, default=1_000_000_000)
    parser.add_argument("--against", type=Path, help="another checkout, whose `train` also prepares the corpus")
    parser.add_argument("--only", choices=["resume", "resume_text"])
    parser.add_argument("--out", type=Path, default=RESULTS / "data-build.json")
    parser.add_argument("--first-step", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.first_step:
        first_step(*options.first_step)
        return
    result = json.loads(options.out.read_text()) if options.only and options.out.exists() else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.only is None:
            result = preparation(options.data, folder, options.pairs, options.against)
        if options.only in (None, "resume"):
            result["resume"] = {"pairs": options.resume_pairs, **resume_times(folder, options.resume_pairs)}
        if options.only in (None, "resume_text"):
            result["resume_text"] = {"tokens": options.resume_tokens, **resume_text(folder, options.resume_tokens)}
    command = f"python benchmarks/data_build.py --pairs {options.pairs}"
    command += " --against CHECKOUT" if options.against else ""
    if options.only is None:
        result |= stamp(command)
    else:
        result[options.only] |= stamp(f"python benchmarks/data_build.py --only {options.only}")
    record(result, options.out)


def preparation(data, folder, n, against=None):
    """Prepare n pairs both ways, and by another checkout."""
    corpus = folder / "pairs.tsv"
    write_pairs(data, corpus, n)
    built = build("--pairs", corpus, folder / "built")
    print("build", json.dumps(built), flush=True)
    old = summary([measure(ROOT, corpus, folder / "run")], n)
    print("train", json.dumps(old), flush=True)
    result = {"pairs": n, "cpus": len(os.sched_getaffinity(0)), "train": old, "build": built}
    result["ratio_of_seconds"] = round(old["seconds"] / built["seconds"], 2)
    if against is not None:
        before = summary([measure(against.resolve(), corpus, folder / "run")], n)
        describe = ["git", "-C", str(against), "describe", "--always", "--dirty"]
        before["commit"] = subprocess.run(describe, capture_output=True, text=True).stdout.strip()
        print("before", json.dumps(before), flush=True)
        result |= {"before": before, "ratio_to_before": round(before["seconds"] / built["seconds"], 2)}
    if n < TEN_MILLION:
        result["extrapolated"] = extrapolated(old, built, n)
    return result


def extrapolated(old, built, n):
    """Seconds for ten million pairs: the stages that grow with the corpus, by ten million over n."""
    growth = TEN_MILLION / n
    stages = {name: seconds * n / 1e6 for name, seconds in old["seconds_per_million"].items()}
    train = sum(seconds * (1 if name in ("start", "learn") else growth) for name, seconds in stages.items())
    build = built["seconds_to_learn"] + (built["seconds"] - built["seconds_to_learn"]) * growth
    return {"pairs": TEN_MILLION, "train_seconds": round(train), "build_seconds": round(build)}


def build(option, corpus, out):
    """Build a folder: seconds, cores and the largest memory of all processes together."""
    command = [sys.executable, "-m", "clearformer", "data", "build", option, str(corpus), "--out", str(out)]
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
    build("--pairs", corpus, built)
    enlarge(built, n_pairs)
    run = folder / "resumed"
    begin(["--pairs", built], run, TINY)
    times = {"start_of_epoch": timed(run)["seconds"]}
    move_to_end(run)
    times["end_of_epoch"] = timed(run)["seconds"]
    return times


def resume_text(folder, n_tokens):
    """The same for windows of text and for streams, and the largest memory in MB."""
    built, corpus = folder / "text", folder / "few.txt"
    corpus.write_text("".join(f"a b {i}\n" for i in range(2000)))
    build("--text", corpus, built)
    enlarge_text(built, n_tokens)
    times = {}
    for model, settings in TINY_TEXT.items():
        run = folder / model
        begin(["--text", built, "--model", model], run, settings)
        at = {"start_of_epoch": timed(run)}
        move_text_to_end(run)
        at["end_of_epoch"] = timed(run)
        times[model] = {name: values["seconds"] for name, values in at.items()}
        times[model]["peak_mb"] = max(values["peak_mb"] for values in at.values())
        print("resume_text", model, json.dumps(times[model]), flush=True)
    return times


def begin(data, run, settings):
    """Train one step, and save."""
    settings = ["train.pause=1", f"train.tokens={TOKENS}", *settings]
    command = [sys.executable, "-m", "clearformer", "train", *map(str, data), "--out", str(run), "--device", "cpu"]
    command += ["--steps", "1000000", *(part for setting in settings for part in ("--set", setting))]
    subprocess.run(command, check=True, cwd=ROOT)


def timed(run):
    begun = time.monotonic()
    command = [sys.executable, __file__, "--first-step", str(run), str(begun)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    return json.loads(done.stdout.splitlines()[-1])


def first_step(run, begun):
    """Resume a run, and print the seconds since `begun` when its first step is done, and the largest memory."""
    from clearformer.cli import app
    from clearformer.training.loop import Trainer

    def complete_step(trainer):
        facts = {"seconds": round(time.monotonic() - float(begun), 2), "peak_mb": memory_mb(name="VmHWM")}
        print(json.dumps(facts), flush=True)
        os._exit(0)

    Trainer.complete_step = complete_step
    app(["train", "--resume", "--out", run, "--set", "train.pause=1000000"])


def enlarge(built, n_pairs):
    """Replace the shards by larger ones with drawn lengths, whose ids are all the same."""
    from clearformer.data.built.folder import Shard
    from clearformer.data.built.pairs import write_lengths
    from clearformer.data.built.pieces import SHARD_ROWS
    from clearformer.data.store import Ragged, StoreWriter

    rng, shards = np.random.default_rng(0), []
    for number in range(-(-n_pairs // SHARD_ROWS)):
        rows, name = min(SHARD_ROWS, n_pairs - number * SHARD_ROWS), f"train-{number:05d}"
        lengths = np.clip(rng.lognormal(2.7, 0.6, (rows, 2)), 1, 200).astype("int64")
        with StoreWriter(built / f"{name}.safetensors", 1000) as writer:
            writer.add_packed(*(Ragged(np.full(side.sum(), 5, "uint16"), side) for side in lengths.T))
        shards.append(Shard(name, rows, tuple(lengths.sum(0).tolist())))
    write_lengths(built, shards)
    write_index(built, shards)


def enlarge_text(built, n_tokens, shard_tokens=SHARD_TOKENS):
    """Replace the shard of a text by many, with documents of drawn lengths and one token."""
    from clearformer.data.built.folder import Shard, read_index
    from clearformer.data.store import DocumentWriter, Ragged
    from clearformer.data.tensor_file import TensorFileWriter, TensorSpec

    rng, shards = np.random.default_rng(0), []
    start = read_index(built).tables["start"]
    every = TensorFileWriter(built / "lengths.safetensors", {"lengths": TensorSpec("int32", (1,))})
    for number in range(-(-n_tokens // shard_tokens)):
        name, n = f"train-{number:05d}", min(shard_tokens, n_tokens - number * shard_tokens)
        lengths = np.clip(rng.lognormal(5, 1, n // 50 + 1), 2, 20_000).astype("int64")
        lengths = lengths[: np.searchsorted(np.cumsum(lengths), n) + 1]
        lengths[-1] -= lengths.sum() - n
        with DocumentWriter(built / f"{name}.safetensors", 1000, start) as writer:
            writer._append_packed(Ragged(np.full(n, 5, "uint16"), lengths))
        every.append("lengths", lengths[:, None])
        shards.append(Shard(name, len(lengths), (n,)))
    every.join()
    write_index(built, shards)


def write_index(built, shards):
    """List other shards, and their checksums, in the index of a folder."""
    from clearformer.data.built.folder import INDEX, list_files, read_index

    listed = [{"name": shard.name, "rows": shard.rows, "tokens": shard.tokens} for shard in shards]
    facts = {**read_index(built).dump(), "shards": listed, "files": list_files(built)}
    (built / INDEX).write_text(json.dumps(facts))


def move_to_end(run):
    """Let the checkpoint say that the run is near the end of its first epoch."""
    from clearformer.data.built.order import ShardedBatches
    from clearformer.data.built.stores import open_pairs

    store = open_pairs(run / "data" / "train.safetensors")
    move(run, int(ShardedBatches(store.lengths, store.shards.edges, TOKENS).counts.sum()) - 10)


def move_text_to_end(run):
    from clearformer.checkpoint import RunFolder
    from clearformer.recipe import Recipe
    from clearformer.tasks.causal_lm import CausalLMTask

    task = CausalLMTask(Recipe.read(run / "recipe.toml"), RunFolder(run))
    move(run, len(task.split("train").steps(0, 1)) - 10)


def move(run, position):
    from clearformer.checkpoint import load_tensors, save_tensors

    tensors, facts = load_tensors(run / "last.safetensors")
    facts["progress"]["position"] = position
    save_tensors(run / "last.safetensors", tensors, facts)


if __name__ == "__main__":
    main()

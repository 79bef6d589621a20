"""Training with 60 % of the memory that a step needs: the same losses as with all of it.

    python benchmarks/out_of_memory.py [--only gpt] [--fraction 0.6]

Each model is trained twice by the command line, in float64 without dropout: with all memory, and with RLIMIT_DATA set,
just before the model is built, to what the process has then and a fraction of what the first training needed beyond
it. Memory is the private writable memory of the process (VmData), sampled every 2 ms. `difference` is the largest
absolute difference of a training loss.
"""

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from provenance import RESULTS, record, stamp

STEPS = 6
SAME = ("--precision", "float64", "--steps", str(STEPS), "--device", "cpu", "--set", "train.log_every=1")
NO_DROPOUT = ("--set", "model.dropout=0")
CASES = {
    "translator": ("--pairs", "pairs.tsv", "--model", "transformer-tiny", "--set", "train.tokens=8192", *NO_DROPOUT),
    "gpt": (
        *("--text", "words.txt", "--model", "gpt2", "--set", "model.n_layers=2", "--set", "model.d_model=192"),
        *("--set", "model.n_heads=3", "--set", "model.max_length=128", "--set", "train.tokens=4096"),
        *("--set", "text.vocab_size=4000", "--set", "model.attention_dropout=0", *NO_DROPOUT),
    ),
    "bert": (
        *("--text", "words.txt", "--model", "bert-base", "--set", "model.n_layers=2", "--set", "model.d_model=192"),
        *("--set", "model.n_heads=3", "--set", "model.d_ff=768", "--set", "train.tokens=4096"),
        *("--set", "text.vocab_size=4000", "--set", "model.attention_dropout=0", *NO_DROPOUT),
    ),
    "lstm": ("--text", "words.txt", "--model", "lstm-ptb-small", "--set", "train.tokens=4000", *NO_DROPOUT),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(CASES), help="names of models")
    parser.add_argument("--fraction", type=float, default=0.6)
    parser.add_argument("--out", type=Path, default=RESULTS / "out-of-memory.json")
    parser.add_argument("--limited", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.limited:
        train(*options.limited)
        return
    rows = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpora(folder)
        for case in options.only:
            rows[case] = compare(case, folder, options.fraction)
            print(case, json.dumps(rows[case]), flush=True)
    only = ["--only", *options.only] if options.only != [*CASES] else []
    shown = shlex.join(["python", "benchmarks/out_of_memory.py", *only, "--fraction", f"{options.fraction:g}"])
    record({"fraction": options.fraction, "steps": STEPS, "models": rows, **stamp(shown)}, options.out)


def compare(case, folder, fraction):
    free = run(case, folder, 0)
    limit = int(fraction * free["bytes"])
    limited = run(case, folder, limit)
    return {
        "needed_mb": round(free["bytes"] / 1e6, 1),
        "limit_mb": round(limit / 1e6, 1),
        "used_mb": round(limited["bytes"] / 1e6, 1),
        "process_mb": round(limited["before"] / 1e6, 1),
        "was_divided": "does not fit in memory" in limited["said"],
        "said": limited["said"].count("does not fit in memory"),
        "losses": len(free["losses"]),
        "difference": max(abs(a - b) for a, b in zip(free["losses"], limited["losses"], strict=True)),
    }


def run(case, folder, limit):
    out = folder / f"{case}-{limit}"
    command = [sys.executable, __file__, "--limited", str(limit), str(out), *CASES[case], *SAME]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{case} with {limit or 'no'} limit:\n{done.stderr[-3000:]}")
    facts = json.loads(done.stdout.splitlines()[-1])
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return {
        **facts,
        "said": " ".join(done.stderr.split()),
        "losses": [r["loss"] for r in records if r["kind"] == "train"],
    }


def train(limit, out, *arguments):
    """Run the train command in this process, with a limit from the moment at which the model is built."""
    from clearformer import fit
    from clearformer.cli import app
    from clearformer.training.loop import Trainer

    before, most, build, end = [], [0], fit.build_model, Trainer.end

    def build_model(config):
        fit.build_model = build
        before.append(data_bytes())
        if int(limit):
            resource.setrlimit(resource.RLIMIT_DATA, (before[0] + int(limit), resource.RLIM_INFINITY))
        threading.Thread(target=watch, args=(most,), daemon=True).start()
        return build(config)

    def end_and_report(trainer):
        end(trainer)
        print(json.dumps({"before": before[0], "bytes": max(most[0], data_bytes()) - before[0]}), flush=True)
        os._exit(0)

    fit.build_model, Trainer.end = build_model, end_and_report
    app(["train", *arguments, "--set", "train.validate_every=1000", "--out", out])


def watch(most):
    while True:
        most[0] = max(most[0], data_bytes())
        time.sleep(0.002)


def data_bytes():
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData"))
    return int(line.split()[1]) * 1024


def write_corpora(folder):
    import numpy as np

    from clearformer.bundled.corpus import generate
    from clearformer.speed.corpora import draw, vocabulary

    (folder / "pairs.tsv").write_text("".join(f"{pair.english}\t{pair.hindi}\n" for pair in generate(4000)))
    rng = np.random.default_rng(0)
    words = draw(rng, vocabulary(rng, 5000), 60_000)
    lines = (" ".join(words[at : at + 20]) for at in range(0, len(words), 20))
    (folder / "words.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

"""Zero configuration of text for a GPU, by the former table and by smooth functions, side by side, on a CPU.

    python benchmarks/smooth_text.py [--data FOLDER] [--sizes 100000,200000] [--seeds 0] [--scale 0.0833]

Test loss (nats per character) of `clearformer train --text FILE` on the first characters of tinyshakespeare; 50,000
characters at its end are test data. Both arms get the settings that zero configuration chooses on a GPU, as --set:
`old` those of version 0.1, `new` those of `text_sizes`. Both are trained for the fraction --scale of their steps, as a
CPU cannot afford more: the result compares the first epochs, not the loss in the end. Finished runs are only read.

Without a GPU, zero configuration trains one small model at every size, as version 0.1 did; there is nothing to compare.
"""

import argparse
import json
import os
import shlex
import sys
from pathlib import Path
from statistics import mean
from typing import Any

from provenance import RESULTS, record, stamp
from quality import train

from clearformer.tasks.auto.sizes import TextSizes, tens, text_sizes

# The former table, unchanged: maximum number of characters, then layers, heads, width, context, dropout, tokens per
# step, epochs and learning rate.
TABLE = [
    (300_000, TextSizes(4, 4, 128, 128, 0.2, 4096, 60, 2e-3)),
    (5_000_000, TextSizes(6, 6, 384, 256, 0.2, 16_384, 60, 1e-3)),
]
ARMS = {"old": lambda n: next(sizes for most, sizes in TABLE if n <= most), "new": text_sizes}
HELD_OUT, TESTS = 0.1, 50_000


def settings(sizes: TextSizes, n: int, scale: float) -> dict[str, object]:
    """Return the settings of [model], [optim] and [train] for n characters of training text."""
    steps = round(scale * max(500, tens(sizes.epochs * n / sizes.tokens)))
    period = max(5, steps // 5)
    return {
        "model.n_layers": sizes.layers,
        "model.n_heads": sizes.heads,
        "model.d_model": sizes.width,
        "model.d_ff": 4 * sizes.width,
        "model.max_length": sizes.context,
        "model.dropout": sizes.dropout,
        "model.attention_dropout": sizes.dropout,
        "optim.lr": sizes.lr,
        "schedule.warmup": steps // 10,
        "train.tokens": sizes.tokens,
        "train.accumulation": 1,
        "train.steps": steps,
        "train.validate_every": period,
        "train.save_every": period,
    }


def compare(n: int, files: list[str], args: argparse.Namespace) -> dict[str, Any]:
    """Train both arms on one text with every seed; return the test losses."""
    scores: dict[str, list[float]] = {arm: [] for arm in ARMS}
    for arm, choose in ARMS.items():
        n_train = round(n * (1 - HELD_OUT))
        chosen = settings(choose(n_train), n_train, args.scale)
        words = [word for key, value in chosen.items() for word in ("--set", f"{key}={json.dumps(value)}")]
        for seed in map(int, args.seeds.split(",")):
            report = train(args.runs / f"{n}-{arm}-{seed}", [*files, *words, "--device", "cpu"], seed)
            scores[arm].append(round(json.loads(report.read_text())["test"]["loss"], 4))
    means = {arm: round(mean(values), 4) for arm, values in scores.items()}
    return {**means, "change": round(means["new"] - means["old"], 4), "scale": args.scale, "seeds": scores}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--sizes", default="100000,200000", help="numbers of characters, comma-separated")
    parser.add_argument("--seeds", default="0", help="comma-separated list")
    parser.add_argument("--scale", type=float, default=0.0833, help="fraction of the chosen steps")
    parser.add_argument("--runs", type=Path, default=Path("runs/smooth-text"))
    parser.add_argument("--out", type=Path, default=RESULTS / "smooth-text.json")
    args = parser.parse_args()
    args.runs.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    whole = (args.data / "tinyshakespeare/input.txt").read_text(encoding="utf-8")
    test = args.runs / "test.txt"
    test.write_text(whole[-TESTS:], encoding="utf-8")
    corpora: dict[str, Any] = {}
    for n in map(int, args.sizes.split(",")):
        path = args.runs / f"{n}.txt"
        path.write_text(whole[:n], encoding="utf-8")
        corpora[f"text-{n}"] = compare(n, ["--text", str(path), "--test", str(test)], args)
        result = {"what": "test loss in nats per character", "corpora": corpora}
        record({**result, **stamp(shlex.join(["python", "benchmarks/smooth_text.py", *sys.argv[1:]]))}, args.out)


if __name__ == "__main__":
    main()

"""The cost of --exportable: test accuracy of a text classifier with and without it, by the public command.

    python benchmarks/exportable.py [--data FOLDER] [--seeds 0,1] [--sizes 1000,2000]

Film reviews (rt-polarity), 1,066 of them for the test. Without the option, zero configuration trains a BERT whose head
reads the mean over the tokens, a form that Hugging Face does not have; with it, the head reads the pooler of the first
token (MegatronBERT). Finished runs are only read.
"""

import argparse
import os
import shlex
import sys
from pathlib import Path
from statistics import mean
from typing import Any

from provenance import RESULTS, record, stamp
from quality import train
from smooth_classes import accuracy, write_reviews

ARMS: dict[str, list[str]] = {"plain": [], "exportable": ["--exportable"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seeds", default="0,1", help="comma-separated list")
    parser.add_argument("--sizes", default="1000,2000", help="numbers of reviews, comma-separated")
    parser.add_argument("--runs", type=Path, default=Path("runs/exportable"))
    args = parser.parse_args()
    args.runs.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sizes, seeds = ([int(n) for n in words.split(",")] for words in (args.sizes, args.seeds))
    result: dict[str, Any] = {"what": "test accuracy in per cent"}
    for n, (files, _) in write_reviews(args.data, args.runs, sizes).items():
        scores = {
            arm: [
                accuracy(train(args.runs / f"{n}-{arm}-{seed}", [*files, *words, "--device", "cpu"], seed))
                for seed in seeds
            ]
            for arm, words in ARMS.items()
        }
        means = {arm: round(mean(values), 2) for arm, values in scores.items()}
        cost = round(means["plain"] - means["exportable"], 2)
        result[f"labels-{n}"] = {**means, "cost": cost, "seeds": scores}
    words = ["python", "benchmarks/exportable.py", *sys.argv[1:]]
    record({**result, **stamp(shlex.join(words))}, RESULTS / "exportable.json")


if __name__ == "__main__":
    main()

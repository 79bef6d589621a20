"""Ten-fold cross-validation of a text classifier, with each fold trained by the public command.

    python benchmarks/folds.py rt-polarity-bigru [--folds 10] [--seed 0] [--at-once 4] [--set KEY=VALUE]

The examples of the recipe's file are shuffled by the seed and divided into folds with equal fractions of each class.
Each fold is the test data once. A tenth of the remaining examples, drawn by the seed, is the validation data for
early stopping, and the rest is the training data. Duplicate sentences may fall into different folds, as in the
published folds. The run folders are runs/NAME-fold-K; unfinished runs are resumed, and finished runs are only read.
The mean and standard deviation over the folds are recorded in benchmarks/results/NAME-folds.json.
"""

import argparse
import random
import shlex
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean, stdev

from provenance import RESULTS, record, stamp
from quality import row, train

from clearformer.data.labels import Labelled
from clearformer.recipe import Recipe

RECIPES = Path(__file__).parent.parent / "recipes"


def deal(examples: Sequence[Labelled], folds: int, seed: int) -> list[list[Labelled]]:
    """Shuffle the examples, and distribute the examples of each class evenly over the folds."""
    shuffled = random.Random(seed).sample(examples, len(examples))
    in_order = sorted(shuffled, key=lambda example: example.label)
    return [in_order[k::folds] for k in range(folds)]


def splits(dealt: Sequence[Sequence[Labelled]], k: int, seed: int) -> dict[str, list[Labelled]]:
    rest = [example for i, fold in enumerate(dealt) if i != k for example in fold]
    random.Random(seed).shuffle(rest)
    n = len(rest) // 10
    return {"test": list(dealt[k]), "valid": rest[:n], "train": rest[n:]}


def write(examples: Sequence[Labelled], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join([*e.texts, e.label]) + "\n" for e in examples), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="name of a recipe in recipes/, without .toml")
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=1, help="number of runs that share the device")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], help="a setting for `clearformer train`; repeatable"
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    path = RECIPES / f"{args.name}.toml"
    dealt = deal(list(Recipe.read(path, args.settings).data.source("train").read()), args.folds, args.seed)

    def fold(k: int) -> Path:
        folder = args.runs / f"{args.name}-fold-{k}"
        settings = [*args.settings, "data.root=.", "data.held_out_test=0"]
        for split, examples in splits(dealt, k, args.seed).items():
            write(examples, file := (folder.parent / f"{folder.name}-data" / f"{split}.tsv").resolve())
            settings.append(f"data.{split}={{path='{file}'}}")
        return train(folder, [str(path), *(word for setting in settings for word in ("--set", setting))], args.seed)

    with ThreadPoolExecutor(args.at_once) as pool:
        reports = list(pool.map(fold, range(args.folds)))
    if missing := [str(report) for report in reports if not report.exists()]:
        sys.exit(f"unfinished runs: {', '.join(missing)}; see the .log file of each run, then repeat this command")
    rows = [{"fold": k, **row(report, args.seed)} for k, report in enumerate(reports)]
    accuracies = [result["accuracy"] for result in rows]
    summary = {"mean": round(mean(accuracies), 4), "sd": round(stdev(accuracies), 4), "side_by_side": args.at_once}
    options = [word for setting in args.settings if "data.root" not in setting for word in ("--set", setting)]
    command = ["python", "benchmarks/folds.py", args.name, "--seed", str(args.seed), *options]
    record({**summary, "folds": rows, **stamp(shlex.join(command))}, args.results / f"{args.name}-folds.json")


if __name__ == "__main__":
    main()

"""Ten-fold cross-validation of a classifier of texts, each fold trained by the public command.

    python benchmarks/folds.py rt-polarity-bigru [--folds 10] [--seed 0] [--at-once 4] [--set KEY=VALUE]

The examples of the recipe's one file are shuffled by the seed and dealt into folds, the classes evenly. Each fold is
the test once; another tenth of what remains, drawn by the seed, is the validation part that chooses when to stop; the
rest is trained on. Sentences that occur twice stay where the deal puts them, as in the published folds. Runs lie in
runs/NAME-fold-K; one that was cut off goes on, and one that is finished is only read. Mean and standard deviation over
the folds are recorded in benchmarks/results/NAME-folds.json.
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
    """Shuffled, then class by class dealt out in turn."""
    shuffled = random.Random(seed).sample(examples, len(examples))
    in_order = sorted(shuffled, key=lambda example: example.label)
    return [in_order[k::folds] for k in range(folds)]


def parts(dealt: Sequence[Sequence[Labelled]], k: int, seed: int) -> dict[str, list[Labelled]]:
    rest = [example for i, fold in enumerate(dealt) if i != k for example in fold]
    random.Random(seed).shuffle(rest)
    n = len(rest) // 10
    return {"test": list(dealt[k]), "valid": rest[:n], "train": rest[n:]}


def write(examples: Sequence[Labelled], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join([*e.texts, e.label]) + "\n" for e in examples), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="a recipe of recipes/")
    parser.add_argument("--folds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--set", dest="settings", action="append", default=[], help="passed on")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    path = RECIPES / f"{given.name}.toml"
    dealt = deal(list(Recipe.read(path, given.settings).data.source("train").read()), given.folds, given.seed)

    def fold(k: int) -> Path:
        folder = given.runs / f"{given.name}-fold-{k}"
        settings = [*given.settings, "data.root=.", "data.held_out_test=0"]
        for split, examples in parts(dealt, k, given.seed).items():
            write(examples, file := (folder.parent / f"{folder.name}-data" / f"{split}.tsv").resolve())
            settings.append(f"data.{split}={{path='{file}'}}")
        return train(folder, [str(path), *(word for setting in settings for word in ("--set", setting))], given.seed)

    with ThreadPoolExecutor(given.at_once) as pool:
        reports = list(pool.map(fold, range(given.folds)))
    if missing := [str(report) for report in reports if not report.exists()]:
        sys.exit(f"not finished: {', '.join(missing)}; see the logs beside the folders, and give the command again")
    rows = [{"fold": k, **row(report, given.seed)} for k, report in enumerate(reports)]
    scores = [found["accuracy"] for found in rows]
    told = {"mean": round(mean(scores), 4), "sd": round(stdev(scores), 4), "side_by_side": given.at_once}
    options = [word for setting in given.settings if "data.root" not in setting for word in ("--set", setting)]
    command = ["python", "benchmarks/folds.py", given.name, "--seed", str(given.seed), *options]
    record({**told, "folds": rows, **stamp(shlex.join(command))}, given.results / f"{given.name}-folds.json")


if __name__ == "__main__":
    main()

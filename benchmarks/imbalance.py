"""Classes out of balance: macro F1 with and without --balance, on few examples of one class, by the public command.

    python benchmarks/imbalance.py [--data FOLDER] [--seeds 6,7,8,9,10] [--methods head,scratch] [--ratios 990:10]

Film reviews of rt-polarity: a tenth of them, half positive and half negative, is the test data of all runs. The
training data has 1,000 reviews drawn by the seed, most of them negative, and the validation data 500 with the same
ratio.

    head       the head of a classifier on a small BERT, which was trained on the texts of all reviews but the test data
    scratch    `clearformer train` without configuration

Finished runs are only read. The result has for each ratio the number of runs that reported the imbalance, and the mean
and standard deviation of macro F1 and accuracy. `gain` is the mean difference that --balance makes to the macro F1. On
this test data, a model that always predicts one class has a macro F1 of 0.333, and random predictions have 0.5.
"""

import argparse
import gzip
import json
import random
import shlex
import subprocess
import sys
from itertools import product
from pathlib import Path
from shutil import rmtree
from statistics import mean, stdev
from typing import Any

from provenance import RESULTS, record, stamp

NOTE = "classes are out of balance"
SEED = 1  # of the order of the reviews, and so of the test data
BASE = ["model.n_layers=1", "model.d_model=64", "model.d_ff=256", "model.n_heads=4", "train.steps=600"]
BASE += ["train.tokens=4096", "train.validate_every=300"]
# Steps of about 280 texts: in smaller ones, most steps have no example of a class with 1 % of the texts.
HEAD = ["train.tokens=8192", "train.steps=120", "train.validate_every=10"]


def reviews(data: Path, label: str) -> list[str]:
    """Return the lines `text <tab> label` of one class, in an order that is the same for all runs."""
    text = gzip.decompress((data / f"rt-polarity/rt-polarity.{label}.gz").read_bytes()).decode("cp1252")
    lines = [f"{' '.join(line.split())}\t{label}" for line in text.split("\n") if line.strip()]
    random.Random(SEED).shuffle(lines)
    return lines


def write(lines: list[str], path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def clearformer(arguments: list[str], settings: list[str], folder: Path) -> None:
    """Run a command of clearformer that writes `folder`, unless it is finished; its messages go to a .log file."""
    if not (folder / "report.json").exists():
        rmtree(folder, ignore_errors=True)
        options = [word for setting in settings for word in ("--set", setting)]
        with folder.with_suffix(".log").open("w") as log:
            command = [sys.executable, "-m", "clearformer", *arguments, "--out", str(folder), *options]
            subprocess.run(command, stderr=log, stdout=log, check=True)


def measure(folder: Path) -> dict[str, Any]:
    test = json.loads((folder / "report.json").read_text())["test"]
    return {
        "macro_f1": round(test["macro_f1"], 4),
        "accuracy": round(test["accuracy"], 4),
        "is_reported": NOTE in folder.with_suffix(".log").read_text(),
    }


def draw(classes: dict[str, list[str]], ratio: str, seed: int, folder: Path) -> list[str]:
    """Write training and validation data drawn by the seed; return the options that give them to a command."""
    rng, splits = random.Random(seed), {"labels": list[str](), "valid": list[str]()}
    for lines, n in zip(classes.values(), map(int, ratio.split(":"))):
        some = rng.sample(lines, n + n // 2)
        splits["labels"] += some[:n]
        splits["valid"] += some[n:]
    paths = {
        name: write(lines, folder / f"{ratio.replace(':', '-')}-{seed}-{name}.tsv") for name, lines in splits.items()
    }
    return [word for name, path in paths.items() for word in (f"--{name}", str(path))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seeds", default="6,7,8,9,10")
    parser.add_argument("--methods", default="head", help="head, scratch, or both, separated by a comma")
    parser.add_argument("--ratios", default="900:100,990:10", help="negative to positive reviews, separated by commas")
    parser.add_argument("--runs", type=Path, default=Path("runs/imbalance"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--name", default="imbalance", help="name of the result, without .json")
    args = parser.parse_args()
    both = {label: reviews(args.data, label) for label in ("neg", "pos")}
    n_test = len(both["neg"]) // 10
    test = write([line for lines in both.values() for line in lines[:n_test]], args.runs / "test.tsv")
    classes = {label: lines[n_test:] for label, lines in both.items()}
    texts = [line.split("\t")[0] for lines in classes.values() for line in lines]
    text = write(random.Random(SEED).sample(texts, len(texts)), args.runs / "reviews.txt")
    if "head" in args.methods:
        clearformer(["train", "--text", str(text), "--model", "bert"], BASE, args.runs / "base")
    commands = {
        "head": (["finetune", "--model", str(args.runs / "base"), "--method", "head"], HEAD),
        "scratch": (["train"], []),
    }
    result: dict[str, Any] = {"test_examples": 2 * n_test}
    for method, ratio in product(args.methods.split(","), args.ratios.split(",")):
        rows: dict[str, list[dict[str, Any]]] = {"plain": [], "balance": []}
        for seed, kind in product(map(int, args.seeds.split(",")), rows):
            folder, (command, settings) = (
                args.runs / f"{method}-{ratio.replace(':', '-')}-{kind}-{seed}",
                commands[method],
            )
            options = [*draw(classes, ratio, seed, args.runs), "--test", str(test)]
            options += ["--balance"] if kind == "balance" else []
            clearformer([*command, *options], [f"train.seed={seed}", *settings], folder)
            rows[kind].append({"seed": seed, **measure(folder)})
        result.setdefault(method, {})[ratio.replace(":", "-")] = summary(rows)
    words = ["--seeds", args.seeds, "--methods", args.methods, "--ratios", args.ratios, "--name", args.name]
    record(
        {**result, **stamp(shlex.join(["python", "benchmarks/imbalance.py", *words]))},
        args.results / f"{args.name}.json",
    )


def summary(rows: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    result: dict[str, Any] = {"reported": sum(row["is_reported"] for row in rows["plain"])}
    for kind, some in rows.items():
        result[kind] = {}
        for metric in ("macro_f1", "accuracy"):
            values = [row[metric] for row in some]
            result[kind] |= {
                metric: round(mean(values), 4),
                f"{metric}_sd": round(stdev(values), 4) if values[1:] else 0,
            }
        result[kind]["runs"] = some
    pairs = zip(rows["balance"], rows["plain"])
    result["gain"] = round(mean(balance["macro_f1"] - plain["macro_f1"] for balance, plain in pairs), 4)
    return result


if __name__ == "__main__":
    main()

"""A sweep of eight runs on a small problem: the winner, chosen on validation data, and the default, both on test data.

    python benchmarks/sweep.py [--data FOLDER] [--seeds 1,2,3] [--runs 8] [--device cpu] [--at-once 1]

Film reviews of rt-polarity: a tenth of them is the test data of all sweeps. Each seed draws 1,000 reviews for training
and 500 for validation, and the settings of the random search: learning rate, dropout and number of steps of a text
classifier. An interrupted sweep is resumed when the command is repeated.
"""

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path
from statistics import mean

from imbalance import reviews, write
from provenance import RESULTS, record, stamp

OVER = ["optim.lr=0.0003..0.01", "model.dropout=0.1..0.6", "train.steps=100,200,400"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with rt-polarity/")
    parser.add_argument("--seeds", default="1,2,3", help="comma-separated list")
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path("runs/sweep-benchmark"))
    args = parser.parse_args()
    classes = [reviews(args.data, label) for label in ("pos", "neg")]
    tenth = min(map(len, classes)) // 10
    test = write([line for lines in classes for line in lines[:tenth]], args.work / "test.tsv")
    rows = []
    for seed in map(int, args.seeds.split(",")):
        rng = random.Random(seed)
        drawn = [line for lines in classes for line in rng.sample(lines[tenth:], 750)]
        rng.shuffle(drawn)
        folder = args.work / f"seed-{seed}"
        train, valid = write(drawn[:1000], folder / "train.tsv"), write(drawn[1000:], folder / "valid.tsv")
        command = [sys.executable, "-m", "clearformer", "sweep", "--labels", str(train), "--valid", str(valid)]
        command += ["--test", str(test), "--model", "textcnn", "--method", "random", "--runs", str(args.runs)]
        command += ["--seed", str(seed), "--set", f"train.seed={seed}", "--device", args.device, "--json"]
        command += ["--at-once", str(args.at_once), "--out", str(folder / "sweep")]
        command += [word for entry in OVER for word in ("--over", entry)]
        results = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        by_name = {row["name"]: row for row in results["table"]}
        best, default = results["table"][0], by_name["000"]
        rows.append({"seed": seed, "best": best, "default": default, "gain": gain(best, default)})
        print(json.dumps(rows[-1]), flush=True)
    result = {
        "mean_gain": round(mean(row["gain"] for row in rows), 4),
        "best_accuracy": round(mean(row["best"]["test"]["accuracy"] for row in rows), 4),
        "default_accuracy": round(mean(row["default"]["test"]["accuracy"] for row in rows), 4),
        "over": OVER,
        "runs": args.runs,
        "seeds": rows,
    }
    record({**result, **stamp("python benchmarks/sweep.py")}, RESULTS / "sweep.json")


def gain(best: dict, default: dict) -> float:
    """The difference of the test accuracies."""
    return round(best["test"]["accuracy"] - default["test"]["accuracy"], 4)


if __name__ == "__main__":
    main()

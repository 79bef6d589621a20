"""A sweep of eight runs on a small problem: the winner, chosen on validation data, and the default, both on test data.

    python benchmarks/sweep.py [--data FOLDER] [--seeds 1,2,3] [--spaces kernels] [--kill-after 60] [--device cpu]

Film reviews of rt-polarity: a tenth of them is the test data of all sweeps. Each seed draws 1,000 reviews for training
and 500 for validation, and the settings of the random search. The model is a convolutional text classifier.

    steps      learning rate, dropout and number of steps
    kernels    learning rate, dropout and widths of the kernels

An interrupted sweep is resumed when the command is repeated. With --kill-after, the first sweep is killed after that
many seconds and resumed, then trained a second time without interruption: all metrics must be equal.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from statistics import mean
from typing import Any

from imbalance import reviews, write
from provenance import RESULTS, record, stamp

SPACES = {
    "steps": ["optim.lr=0.0003..0.01", "model.dropout=0.1..0.6", "train.steps=100,200,400"],
    "kernels": ["optim.lr=0.0005..0.005", "model.dropout=0.2..0.6", "model.base.widths=[1,2],[1,2,3],[2,3,4]"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with rt-polarity/")
    parser.add_argument("--seeds", default="1,2,3", help="comma-separated list")
    parser.add_argument("--spaces", default=",".join(SPACES), help="comma-separated list")
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--kill-after", type=float, help="seconds")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--work", type=Path, default=Path("runs/sweep-benchmark"))
    args = parser.parse_args()
    classes = [reviews(args.data, label) for label in ("pos", "neg")]
    tenth = min(map(len, classes)) // 10
    test = write([line for lines in classes for line in lines[:tenth]], args.work / "test.tsv")
    result: dict[str, Any] = {"runs": args.runs, "test_examples": 2 * tenth}
    for space in args.spaces.split(","):
        rows = []
        for seed in map(int, args.seeds.split(",")):
            splits = draw([lines[tenth:] for lines in classes], seed, args.work / f"seed-{seed}")
            command = [sys.executable, "-m", "clearformer", "sweep", *splits, "--test", str(test), "--model", "textcnn"]
            command += ["--method", "random", "--runs", str(args.runs), "--seed", str(seed), "--device", args.device]
            command += ["--set", f"train.seed={seed}", *(word for entry in SPACES[space] for word in ("--over", entry))]
            folder = args.work / f"{space}-{seed}"
            if args.kill_after is not None and "resumed" not in result:
                result["resumed"] = killed_and_resumed(command, folder, args.kill_after)
            rows.append({"seed": seed, **best_and_default(sweep(command, folder))})
            print(json.dumps(rows[-1]), flush=True)
        result[space] = summary(space, rows)
    record({**result, **stamp(f"python benchmarks/sweep.py {' '.join(sys.argv[1:])}".strip())}, RESULTS / "sweep.json")


def draw(classes: list[list[str]], seed: int, folder: Path) -> list[str]:
    """Write 1,000 reviews for training and 500 for validation; return the options that give them to the command."""
    rng = random.Random(seed)
    drawn = [line for lines in classes for line in rng.sample(lines, 750)]
    rng.shuffle(drawn)
    train, valid = write(drawn[:1000], folder / "train.tsv"), write(drawn[1000:], folder / "valid.tsv")
    return ["--labels", str(train), "--valid", str(valid)]


def sweep(command: list[str], folder: Path) -> dict[str, Any]:
    """Run or resume a sweep, and return its results."""
    process = subprocess.run([*command, "--out", str(folder), "--json"], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(process.stdout)


def killed_and_resumed(command: list[str], folder: Path, seconds: float) -> dict[str, Any]:
    """Kill a sweep with all its processes, resume it, and compare its results with those of an uninterrupted one.

    A finished comparison is only read.
    """
    if (file := folder.with_name("resumed.json")).exists():
        return json.loads(file.read_text())
    process = subprocess.Popen([*command, "--out", str(folder)], stdout=subprocess.DEVNULL, process_group=0)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    runs = [path.name for path in sorted(folder.glob("[0-9]*"))]
    complete = [path.parent.name for path in sorted(folder.glob("[0-9]*/report.json"))]
    resumed, straight = (
        metrics(sweep(command, path)) for path in (folder, folder.with_name(f"{folder.name}-straight"))
    )
    result = {"killed_after": seconds, "started": len(runs), "complete": len(complete), "is_equal": resumed == straight}
    file.write_text(json.dumps(result))
    return result


def metrics(results: dict[str, Any]) -> list[dict[str, Any]]:
    """The table of a sweep without times."""
    return [{name: value for name, value in row.items() if name != "seconds"} for row in results["table"]]


def best_and_default(results: dict[str, Any]) -> dict[str, Any]:
    best, default = results["table"][0], next(row for row in results["table"] if row["name"] == "000")
    return {
        "gain": round(best["test"]["accuracy"] - default["test"]["accuracy"], 4),
        "best": shown(best),
        "default": shown(default),
    }


def shown(row: dict[str, Any]) -> dict[str, Any]:
    accuracies = {"validation_accuracy": round(row["score"], 4), "test_accuracy": round(row["test"]["accuracy"], 4)}
    return {"settings": row["settings"], **accuracies, "steps": row["steps"]}


def summary(space: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "over": SPACES[space],
        "gain": round(mean(row["gain"] for row in rows), 4),
        "best": round(mean(row["best"]["test_accuracy"] for row in rows), 4),
        "default": round(mean(row["default"]["test_accuracy"] for row in rows), 4),
        "seeds": rows,
    }


if __name__ == "__main__":
    main()

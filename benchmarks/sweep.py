"""Sweeps of eight runs on small problems: the winner, chosen on validation data, and the default, both on test data.

    python benchmarks/sweep.py [--data FOLDER] [--seeds 1,2,3] [--spaces kernels] [--kill-after 60] [--device cpu]

Each seed draws its data and the settings of the random search.

    steps      a convolutional classifier of film reviews: learning rate, dropout and number of steps
    kernels    the same: learning rate, dropout and widths of the kernels
    text       a small GPT of characters, trained for 200 steps: learning rate and dropout

Film reviews (rt-polarity): a tenth of them is the test data of all sweeps; each seed draws 1,000 reviews for training
and 500 for validation. Text (tinyshakespeare): each seed has its own 200,000 characters for training, and the following
50,000 for validation and for the test each.

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
    "text": ["optim.lr=0.0005..0.02", "model.dropout=0.0,0.1,0.2"],
}
METRICS = {"steps": "accuracy", "kernels": "accuracy", "text": "loss"}
SMALL = ["model.n_layers=2", "model.d_model=64", "model.d_ff=256", "train.steps=200", "train.validate_every=50"]
PARTS = {"text": 200_000, "valid": 50_000, "test": 50_000}  # characters
APART = 350_000  # characters between the texts of two seeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder with the corpora")
    parser.add_argument("--seeds", default="1,2,3", help="comma-separated list")
    parser.add_argument("--spaces", default=",".join(SPACES), help="comma-separated list")
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--kill-after", type=float, help="seconds")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--work", type=Path, default=Path("runs/sweep-benchmark"))
    parser.add_argument("--name", default="sweep", help="name of the result, without .json")
    args = parser.parse_args()
    result: dict[str, Any] = {"runs": args.runs}
    for space in args.spaces.split(","):
        problem = text if space == "text" else film_reviews
        rows = []
        for seed in map(int, args.seeds.split(",")):
            command = [sys.executable, "-m", "clearformer", "sweep", *problem(args.data, seed, args.work)]
            command += ["--method", "random", "--runs", str(args.runs), "--seed", str(seed), "--device", args.device]
            command += ["--set", f"train.seed={seed}", *(word for entry in SPACES[space] for word in ("--over", entry))]
            folder = args.work / f"{space}-{seed}"
            if args.kill_after is not None and "resumed" not in result:
                result["resumed"] = killed_and_resumed(command, folder, args.kill_after)
            rows.append({"seed": seed, **best_and_default(sweep(command, folder), METRICS[space])})
            print(json.dumps(rows[-1]), flush=True)
        result[space] = summary(space, rows)
    command = f"python benchmarks/sweep.py {' '.join(sys.argv[1:])}".strip()
    record({**result, **stamp(command)}, RESULTS / f"{args.name}.json")


def film_reviews(data: Path, seed: int, folder: Path) -> list[str]:
    """Write the reviews of one seed; return the options that give them to the command."""
    classes = [reviews(data, label) for label in ("pos", "neg")]
    tenth = min(map(len, classes)) // 10
    test = write([line for lines in classes for line in lines[:tenth]], folder / "test.tsv")
    splits = draw([lines[tenth:] for lines in classes], seed, folder / f"seed-{seed}")
    return [*splits, "--test", str(test), "--model", "textcnn"]


def text(data: Path, seed: int, folder: Path) -> list[str]:
    """Write the text of one seed; return the options that give it, and the size of the model, to the command."""
    whole = (data / "tinyshakespeare/input.txt").read_text(encoding="utf-8")
    at, options = (seed - 1) * APART, list[str]()
    for name, n in PARTS.items():
        path = folder / f"seed-{seed}" / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(whole[at : at + n], encoding="utf-8")
        options, at = [*options, f"--{name}", str(path)], at + n
    return [*options, *(word for setting in SMALL for word in ("--set", setting))]


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


def best_and_default(results: dict[str, Any], metric: str) -> dict[str, Any]:
    best, default = results["table"][0], next(row for row in results["table"] if row["name"] == "000")
    gain = best["test"][metric] - default["test"][metric]
    return {
        "gain": round(-gain if metric == "loss" else gain, 4),
        "best": shown(best, metric),
        "default": shown(default, metric),
    }


def shown(row: dict[str, Any], metric: str) -> dict[str, Any]:
    values = {f"validation_{metric}": round(row["score"], 4), f"test_{metric}": round(row["test"][metric], 4)}
    return {"settings": row["settings"], **values, "steps": row["steps"]}


def summary(space: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    metric = METRICS[space]
    return {
        "over": SPACES[space],
        "metric": metric,
        "gain": round(mean(row["gain"] for row in rows), 4),
        "best": round(mean(row["best"][f"test_{metric}"] for row in rows), 4),
        "default": round(mean(row["default"][f"test_{metric}"] for row in rows), 4),
        "seeds": rows,
    }


if __name__ == "__main__":
    main()

"""Train a recipe by the public command with several seeds, and record the metrics.

    python benchmarks/quality.py multi30k-en-de --seeds 1,2,3 --at-once 3 -- recipes/multi30k-en-de.toml
    python benchmarks/quality.py shakespeare-char --reach loss=1.4697 -- recipes/shakespeare-char.toml
    python benchmarks/quality.py zero-29k --seeds 1 -- --pairs train.en.gz,train.de.gz --test test.en.gz,test.de.gz

Arguments after `--` are passed to `clearformer train`. The run folders are runs/NAME-SEED; if the command is
repeated, unfinished runs are resumed from their last checkpoint, and finished runs are only read. When all runs are
finished, their test metrics (validation metrics, if there is no test data) are recorded per seed and on average in
benchmarks/results/NAME.json. With --reach, the file also records when a validation metric first reached a value; its
seconds count only training at the median speed, without compilation and validation, and `median_per_second` is this
speed in tokens, examples or images.
"""

import argparse
import json
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean

from provenance import RESULTS, record, stamp

from clearformer.checkpoint import RunFolder
from clearformer.loading.folder import read_recipe, task_of
from clearformer.verbs.compare import reached, seconds_per_step


def train(folder: Path, arguments: list[str], seed: int) -> Path:
    """Start or resume one run and train it to the end. FOLDER.log is its log. Return the path of its report."""
    run = RunFolder(folder)
    if not run.report.exists():
        fresh = [*arguments, "--set", f"train.seed={seed}"]
        command = ["train", *(["--resume"] if run.last.exists() else fresh), "--out", str(folder)]
        folder.parent.mkdir(parents=True, exist_ok=True)
        with open(f"{folder}.log", "a") as log:
            subprocess.run([sys.executable, "-m", "clearformer", *command], stdout=log, stderr=log, check=False)
    return run.report


def row(report: Path, seed: int) -> dict:
    contents = json.loads(report.read_text())
    speeds = (f"{unit}_per_second" for unit in ("tokens", "examples", "images"))
    keys = ("best_step", "steps", "seconds", *speeds, "parameters")
    values = {name: contents[name] for name in keys if name in contents}
    unit = task_of(read_recipe(report.parent)).unit
    pace = seconds_per_step(RunFolder(report.parent), unit)
    values["median_per_second"] = round(contents[unit] / contents["steps"] / pace)
    valid = {name: round(value, 4) for name, value in contents["valid"].items()}
    final = contents.get("test", contents["valid"])  # validation metrics, if there is no test data
    metrics = {name: round(value, 4) for name, value in final.items() if isinstance(value, float)}
    return {"seed": seed, **metrics, "judged_on": "test" if "test" in contents else "valid", "valid": valid, **values}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="name of the runs and of the result file")
    parser.add_argument("--seeds", default="1,2,3", help="comma-separated list")
    parser.add_argument("--at-once", type=int, default=1, help="number of runs that share the device")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument(
        "--reach", metavar="METRIC=VALUE", help="also record when this validation metric was first reached"
    )
    parser.add_argument("train", nargs="+", help="arguments for `clearformer train`")
    args = parser.parse_args()
    seeds = [int(seed) for seed in args.seeds.split(",")]
    with ThreadPoolExecutor(args.at_once) as pool:
        reports = list(pool.map(lambda seed: train(args.runs / f"{args.name}-{seed}", args.train, seed), seeds))
    if missing := [str(report) for report in reports if not report.exists()]:
        sys.exit(f"unfinished runs: {', '.join(missing)}; see the .log file of each run, then repeat this command")
    rows = [row(report, seed) for report, seed in zip(reports, seeds)]
    if args.reach:
        name, goal = args.reach.split("=")
        recipe = read_recipe(reports[0].parent)
        task = task_of(recipe)
        metric = next(metric for metric in task.metrics(recipe) if metric.name == name)
        for result, report in zip(rows, reports):
            result["reached"] = reached(RunFolder(report.parent), metric, float(goal), task.unit)
    means = {name: round(mean(r[name] for r in rows), 4) for name, value in rows[0].items() if isinstance(value, float)}
    command = shlex.join(["clearformer", "train", *args.train, "--set", "train.seed=SEED"])
    first = json.loads(reports[0].read_text())
    details = {
        "side_by_side": args.at_once,
        "signatures": first.get("test", {}).get("signatures"),
    }
    provenance = {**stamp(command), "versions": first["versions"]}  # of the machine that trained
    record({"seeds": rows, "mean": means, **details, **provenance}, args.results / f"{args.name}.json")


if __name__ == "__main__":
    main()

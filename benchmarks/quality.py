"""Several trainings by the public command, one for each seed, and what they reach.

    python benchmarks/quality.py multi30k-en-de --seeds 1,2,3 --at-once 3 -- recipes/multi30k-en-de.toml
    python benchmarks/quality.py shakespeare-char --reach loss=1.4697 -- recipes/shakespeare-char.toml
    python benchmarks/quality.py zero-29k --seeds 1 -- --pairs train.en.gz,train.de.gz --test test.en.gz,test.de.gz

What follows `--` is passed on to `clearformer train`. Runs lie in runs/NAME-SEED; one that was cut off goes on from its
last checkpoint when the command is given again, and one that is finished is only read. When all are there, their test
scores are recorded, each and on average, in benchmarks/results/NAME.json; without a test, those of validation. With
--reach, also when validation first said so much: the seconds are those of training alone, at its median speed, without
compilation and validation, as is `median_per_second`, of tokens, examples or images.
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
    """One training, from wherever it stands to its end; its log is beside the folder."""
    run = RunFolder(folder)
    if not run.report.exists():
        fresh = [*arguments, "--set", f"train.seed={seed}"]
        command = ["train", *(["--resume"] if run.last.exists() else fresh), "--out", str(folder)]
        folder.parent.mkdir(parents=True, exist_ok=True)
        with open(f"{folder}.log", "a") as log:
            subprocess.run([sys.executable, "-m", "clearformer", *command], stdout=log, stderr=log, check=False)
    return run.report


def row(report: Path, seed: int) -> dict:
    found = json.loads(report.read_text())
    speeds = (f"{unit}_per_second" for unit in ("tokens", "examples", "images"))
    wanted = ("best_step", "steps", "seconds", *speeds, "parameters")
    kept = {name: found[name] for name in wanted if name in found}
    unit = task_of(read_recipe(report.parent)).unit
    pace = seconds_per_step(RunFolder(report.parent), unit)
    kept["median_per_second"] = round(found[unit] / found["steps"] / pace)
    valid = {name: round(value, 4) for name, value in found["valid"].items()}
    judged = found.get("test", found["valid"])  # of a text without a test part, what validation says
    scores = {name: round(value, 4) for name, value in judged.items() if isinstance(value, float)}
    return {"seed": seed, **scores, "judged_on": "test" if "test" in found else "valid", "valid": valid, **kept}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--seeds", default="1,2,3", help="divided by commas")
    parser.add_argument("--at-once", type=int, default=1, help="trainings side by side on one device")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--reach", metavar="METRIC=VALUE", help="say when validation was first as good as this")
    parser.add_argument("train", nargs="+", help="what `clearformer train` gets")
    given = parser.parse_args()
    seeds = [int(seed) for seed in given.seeds.split(",")]
    with ThreadPoolExecutor(given.at_once) as pool:
        reports = list(pool.map(lambda seed: train(given.runs / f"{given.name}-{seed}", given.train, seed), seeds))
    if missing := [str(report) for report in reports if not report.exists()]:
        sys.exit(f"not finished: {', '.join(missing)}; see the logs beside the folders, and give the command again")
    rows = [row(report, seed) for report, seed in zip(reports, seeds)]
    if given.reach:
        name, goal = given.reach.split("=")
        recipe = read_recipe(reports[0].parent)
        task = task_of(recipe)
        metric = next(metric for metric in task.metrics(recipe) if metric.name == name)
        for found, report in zip(rows, reports):
            found["reached"] = reached(RunFolder(report.parent), metric, float(goal), task.unit)
    means = {name: round(mean(r[name] for r in rows), 4) for name, value in rows[0].items() if isinstance(value, float)}
    command = shlex.join(["clearformer", "train", *given.train, "--set", "train.seed=SEED"])
    first = json.loads(reports[0].read_text())
    told = {
        "side_by_side": given.at_once,
        "signatures": first.get("test", {}).get("signatures"),
    }
    said = {**stamp(command), "versions": first["versions"]}  # where they were trained, not where they are read
    record({"seeds": rows, "mean": means, **told, **said}, given.results / f"{given.name}.json")


if __name__ == "__main__":
    main()

"""A published encoder made into a classifier by each method, from few examples and from many, by the public command.

    python benchmarks/transfer.py mrpc --model FOLDER [--data FOLDER] [--seeds 1,2,3,4,5] [--at-once 6]
    python benchmarks/transfer.py rt-polarity --model FOLDER --methods full,lora,prefix,head,scratch --seeds 1,2,3

mrpc           do two sentences say the same? 3,667 pairs to learn from, 408 to validate on, 1,725 to test on
rt-polarity    is a review for or against the film? a seeded twentieth to validate on and a tenth to test on, for all

A smaller training part is drawn from the whole one by the seed; the parts to validate and to test on stay whole.
`scratch` is the encoder that `clearformer train --labels` chooses, with no model to start from. Trainings that are
finished are only read; those that were cut off, seconds or minutes long, begin anew. The checkpoint that was best on
validation is tested, once.
"""

import argparse
import gzip
import json
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from shutil import rmtree
from statistics import mean, stdev
from tomllib import loads

from provenance import RESULTS, record, stamp

from clearformer.checkpoint import RunFolder
from clearformer.data.sources import read_lines
from clearformer.plots import plot_lines


def mrpc(data: Path) -> dict[str, list[str]]:
    """Rows of label, sentence, sentence; the first line of a file is its header."""
    files = {"train": "train.tsv.gz", "valid": "dev.tsv.gz", "test": "msr_paraphrase_test.txt.gz"}
    rows = {part: list(read_lines(data / "glue/MRPC" / name))[1:] for part, name in files.items()}
    return {part: ["\t".join(row.split("\t")[i] for i in (0, 3, 4)) for row in found] for part, found in rows.items()}


def rt_polarity(data: Path) -> dict[str, list[str]]:
    rows = []
    for label in ("neg", "pos"):
        text = gzip.decompress((data / f"rt-polarity/rt-polarity.{label}.gz").read_bytes()).decode("cp1252")
        rows += [f"{label}\t{' '.join(line.split())}" for line in text.split("\n") if line.strip()]
    random.Random(0).shuffle(rows)
    test, valid = len(rows) // 10, len(rows) // 20
    return {"test": rows[:test], "valid": rows[test : test + valid], "train": rows[test + valid :]}


TASKS = {"mrpc": mrpc, "rt-polarity": rt_polarity}


def write(rows: list[str], path: Path) -> Path:
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return path


def held_out(given, part: str) -> Path:
    return given.runs / f"{given.task}-{part}.tsv"


def train(given, parts, size: str, method: str, seed: int) -> dict | None:
    """One training to its report; its log lies beside its folder."""
    folder = given.runs / f"{given.task}-{method}-{size}-{seed}"
    run, n = RunFolder(folder), len(parts["train"])
    if not run.report.exists():
        rmtree(folder, ignore_errors=True)
        drawn = random.Random(seed).sample(parts["train"], min(n, int(size) if size != "all" else n))
        labels, files = write(drawn, Path(f"{folder}.tsv")), {part: held_out(given, part) for part in ("valid", "test")}
        start = ["train"] if method == "scratch" else ["finetune", "--model", str(given.model), "--method", method]
        start += ["--labels", str(labels), "--valid", str(files["valid"]), "--test", str(files["test"])]
        start += ["--label-column", "0", "--text-columns", "1,2" if given.task == "mrpc" else "1"]
        start += [word for setting in (*given.settings, f"train.seed={seed}") for word in ("--set", setting)]
        with open(f"{folder}.log", "a") as log:
            command = [sys.executable, "-m", "clearformer", *start, "--out", str(folder)]
            subprocess.run(command, stdout=log, stderr=log, check=False)
    if not run.report.exists():
        return None
    return json.loads(run.report.read_text()) | {"rate": loads(run.recipe.read_text())["optim"]["lr"]}


def summary(reports: list[dict]) -> dict:
    accuracies = [round(100 * report["test"]["accuracy"], 2) for report in reports]
    return {
        "mean": round(mean(accuracies), 2),
        "sd": round(stdev(accuracies), 2) if len(accuracies) > 1 else None,
        "accuracies": accuracies,
        "valid": round(100 * mean(report["valid"]["accuracy"] for report in reports), 2),
        "macro_f1": round(100 * mean(report["test"]["macro_f1"] for report in reports), 2),
        "seconds": round(mean(report["seconds"] for report in reports), 1),
        "rate": reports[0]["rate"],
        "parameters": reports[0]["parameters"],
        "trainable": reports[0]["trainable"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--model", type=Path, required=True, help="the published encoder's folder")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--methods", default="full,lora,prefix,head")
    parser.add_argument("--sizes", default="100,1000,all")
    parser.add_argument("--seeds", default="1,2,3,4,5")
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--set", dest="settings", action="append", default=[], help="passed on")
    parser.add_argument("--runs", type=Path, default=Path("runs/transfer"))
    parser.add_argument("--out", type=Path, help="benchmarks/results/transfer-TASK.json unless given")
    given = parser.parse_args()
    given.runs.mkdir(parents=True, exist_ok=True)
    out = given.out or RESULTS / f"transfer-{given.task}.json"
    parts = TASKS[given.task](given.data)
    for part in ("valid", "test"):
        write(parts[part], held_out(given, part))
    sizes, methods = given.sizes.split(","), given.methods.split(",")
    seeds = [int(seed) for seed in given.seeds.split(",")]
    with ThreadPoolExecutor(given.at_once) as pool:
        jobs = {job: pool.submit(train, given, parts, *job) for job in product(sizes, methods, seeds)}
        reports = {job: report for job, run in jobs.items() if (report := run.result())}
    if missing := [job for job in jobs if job not in reports]:
        print(f"not finished, see the logs: {missing}", file=sys.stderr)
    found = {
        method: {
            size: summary(done)
            for size in sizes
            if len(done := [reports[size, method, seed] for seed in seeds if (size, method, seed) in reports])
        }
        for method in methods
    }
    told = {"examples": {part: len(rows) for part, rows in parts.items()}, "seeds": seeds}
    command = f"python benchmarks/transfer.py {given.task} --methods {given.methods} --seeds {given.seeds}"
    record({**told, "methods": found, "side_by_side": given.at_once, **stamp(command)}, out)
    lines = {
        method: (
            [len(parts["train"]) if size == "all" else int(size) for size in row],
            [r["mean"] for r in row.values()],
        )
        for method, row in found.items()
    }
    plot_lines(lines, "examples to learn from", "accuracy on the test, %", out.with_suffix(".png"), scale="log")


if __name__ == "__main__":
    main()

"""Accuracy of a published encoder fine-tuned with each method, on few and many examples, by the public command.

    python benchmarks/transfer.py mrpc --model FOLDER [--data FOLDER] [--seeds 1,2,3,4,5] [--at-once 6]
    python benchmarks/transfer.py rt-polarity --model FOLDER --methods full,lora,prefix,head,scratch --seeds 1,2,3

mrpc           paraphrase detection: 3,667 training, 408 validation and 1,725 test pairs
rt-polarity    sentiment of film reviews: a twentieth for validation and a tenth for the test, the same for all runs

Smaller training sets are drawn by the seed; validation and test data stay complete. `scratch` is the encoder that
`clearformer train --labels` chooses, without a base. Finished runs are only read; unfinished runs, which take seconds
or minutes, are started again. Only the best checkpoint is tested, once.
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
    """Rows of label, sentence, sentence, without the header of each file."""
    files = {"train": "train.tsv.gz", "valid": "dev.tsv.gz", "test": "msr_paraphrase_test.txt.gz"}
    rows = {split: list(read_lines(data / "glue/MRPC" / name))[1:] for split, name in files.items()}
    return {split: ["\t".join(row.split("\t")[i] for i in (0, 3, 4)) for row in lines] for split, lines in rows.items()}


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


def held_out(args, split: str) -> Path:
    return args.runs / f"{args.task}-{split}.tsv"


def train(args, splits, size: str, method: str, seed: int) -> dict | None:
    """Train one model and return its report, or None if it fails. FOLDER.log is its log."""
    folder = args.runs / f"{args.task}-{method}-{size}-{seed}"
    run, n = RunFolder(folder), len(splits["train"])
    if not run.report.exists():
        rmtree(folder, ignore_errors=True)
        drawn = random.Random(seed).sample(splits["train"], min(n, int(size) if size != "all" else n))
        labels = write(drawn, Path(f"{folder}.tsv"))
        files = {split: held_out(args, split) for split in ("valid", "test")}
        start = ["train"] if method == "scratch" else ["finetune", "--model", str(args.model), "--method", method]
        start += ["--labels", str(labels), "--valid", str(files["valid"]), "--test", str(files["test"])]
        start += ["--label-column", "0", "--text-columns", "1,2" if args.task == "mrpc" else "1"]
        start += [word for setting in (*args.settings, f"train.seed={seed}") for word in ("--set", setting)]
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
    parser.add_argument("--model", type=Path, required=True, help="folder of the published encoder")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--methods", default="full,lora,prefix,head")
    parser.add_argument("--sizes", default="100,1000,all")
    parser.add_argument("--seeds", default="1,2,3,4,5")
    parser.add_argument("--at-once", type=int, default=1, help="number of runs that share the device")
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], help="a setting for `clearformer train`; repeatable"
    )
    parser.add_argument("--runs", type=Path, default=Path("runs/transfer"))
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/transfer-TASK.json")
    args = parser.parse_args()
    args.runs.mkdir(parents=True, exist_ok=True)
    out = args.out or RESULTS / f"transfer-{args.task}.json"
    splits = TASKS[args.task](args.data)
    for split in ("valid", "test"):
        write(splits[split], held_out(args, split))
    sizes, methods = args.sizes.split(","), args.methods.split(",")
    seeds = [int(seed) for seed in args.seeds.split(",")]
    with ThreadPoolExecutor(args.at_once) as pool:
        jobs = {job: pool.submit(train, args, splits, *job) for job in product(sizes, methods, seeds)}
        reports = {job: report for job, run in jobs.items() if (report := run.result())}
    if missing := [job for job in jobs if job not in reports]:
        print(f"unfinished runs: {missing}; see the .log file of each run", file=sys.stderr)
    results = {
        method: {
            size: summary(done)
            for size in sizes
            if len(done := [reports[size, method, seed] for seed in seeds if (size, method, seed) in reports])
        }
        for method in methods
    }
    details = {"examples": {split: len(rows) for split, rows in splits.items()}, "seeds": seeds}
    command = f"python benchmarks/transfer.py {args.task} --methods {args.methods} --seeds {args.seeds}"
    record({**details, "methods": results, "side_by_side": args.at_once, **stamp(command)}, out)
    lines = {
        method: (
            [len(splits["train"]) if size == "all" else int(size) for size in row],
            [r["mean"] for r in row.values()],
        )
        for method, row in results.items()
    }
    plot_lines(lines, "training examples", "test accuracy, %", out.with_suffix(".png"), scale="log")


if __name__ == "__main__":
    main()

"""The gap between training and test by fine-tuning method, on few examples and without early stopping.

    python benchmarks/overfitting.py --model FOLDER [--data FOLDER] [--seeds 1,2,3] [--examples 200] [--epochs 5,15]

A published encoder is fine-tuned by the public command, as in benchmarks/transfer.py, on sentences of rt-polarity that
the seed draws. `finetune` chooses the learning rate of each method. Every run continues to its last step, and the
weights of that step are judged: nothing is chosen on validation data, since early stopping would hide the overfitting.

    gap    loss on the test data − loss on the training data;  accuracy on the training data − on the test data

All are computed without dropout, on the 1,066 test sentences and on the training sentences of the run. `scratch` is the
encoder that `clearformer train --labels` chooses, with its own vocabulary and number of steps, in the row of the most
epochs. Finished runs are only read.
"""

import argparse
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import transfer
from provenance import RESULTS, record, stamp

import clearformer
from clearformer.plots.style import BLUE, ORANGE, saved_figure

FIGURE = Path(__file__).parent.parent / "docs" / "images" / "overfitting.png"
METHODS = ("full", "lora", "prefix", "head")
TITLES = {"full": "full", "lora": "LoRA", "prefix": "prefix", "head": "head", "scratch": "from scratch"}
TASK = "rt-polarity"
NEVER = 1_000_000  # steps: only the last step is validated, and its weights are kept


def settings(method: str, epochs: float) -> list[str]:
    length = [] if method == "scratch" else [f"train.epochs={epochs:g}"]
    return [*length, "train.patience=0", f"train.validate_every={NEVER}", f"train.save_every={NEVER}"]


def one_run(args: argparse.Namespace, splits: dict[str, list[str]], method: str, epochs: float, seed: int) -> dict:
    """Train a model, and return its losses and accuracies on training and test data."""
    given = argparse.Namespace(
        task=TASK, model=args.model, runs=args.runs / f"{epochs:g}", settings=settings(method, epochs)
    )
    given.runs.mkdir(parents=True, exist_ok=True)
    for split in ("valid", "test"):
        transfer.write(splits[split], transfer.held_out(given, split))
    report = transfer.train(given, splits, str(args.examples), method, seed)
    if report is None:
        raise SystemExit(f"a run of {method} failed: see the .log files in {given.runs}")
    folder = given.runs / f"{TASK}-{method}-{args.examples}-{seed}"
    metrics = {"train": clearformer.evaluate(folder, labels=f"{folder}.tsv"), "test": report["test"]}
    sides = {side: {name: round(values[name], 4) for name in ("loss", "accuracy")} for side, values in metrics.items()}
    gap = {
        "loss": round(sides["test"]["loss"] - sides["train"]["loss"], 4),
        "accuracy": round(sides["train"]["accuracy"] - sides["test"]["accuracy"], 4),
    }
    more = {name: report[name] for name in ("steps", "trainable", "rate", "seconds")}
    return {"seed": seed, **sides, "gap": gap, **more}


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The means over the seeds, and the rows."""
    means = {
        side: {name: round(mean(row[side][name] for row in rows), 4) for name in ("loss", "accuracy")}
        for side in ("train", "test", "gap")
    }
    return {**means, **{name: rows[0][name] for name in ("steps", "trainable", "rate")}, "seeds": list(rows)}


def plot(results: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Training and test loss and accuracy of every method: the line between the two is the gap."""
    rows = [(TITLES[method], int(epochs), r) for method, by in results.items() for epochs, r in by.items()]
    labels = [name if name == "from scratch" else f"{name}, {epochs} epochs" for name, epochs, _ in rows]
    with saved_figure(path, 7.4, 0.8 + 0.28 * len(rows)) as figure:
        for ax, name in zip(figure.subplots(1, 2, sharey=True), ("accuracy", "loss")):
            for y, (_, _, result) in enumerate(rows):
                ends = [result[side][name] for side in ("train", "test")]
                ax.plot(ends, [y, y], color="#c9ccd2", linewidth=3, zorder=1, solid_capstyle="round")
                for side, colour in (("train", BLUE), ("test", ORANGE)):
                    seeds = [row[side][name] for row in result["seeds"]]
                    ax.plot(seeds, [y] * len(seeds), "|", color=colour, markersize=6, zorder=2)
                    ax.plot(result[side][name], y, "o", color=colour, label=None if y else side, zorder=3)
            ax.grid(axis="x")
            ax.set_xlabel(f"{name}, mean and each seed")
        figure.axes[0].set_yticks(range(len(rows)), labels)
        figure.axes[0].invert_yaxis()
        handles, _ = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, ["training sentences", "test sentences"], loc="outside upper center", ncols=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder of the published encoder")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--examples", type=int, default=200, help="training sentences")
    parser.add_argument("--epochs", default="5,15")
    parser.add_argument("--runs", type=Path, default=Path("runs/overfitting"))
    parser.add_argument("--out", type=Path, default=RESULTS / "overfitting.json")
    parser.add_argument("--figure", type=Path, default=FIGURE)
    args = parser.parse_args()
    splits = transfer.TASKS[TASK](args.data)
    seeds, lengths = [int(seed) for seed in args.seeds.split(",")], [float(n) for n in args.epochs.split(",")]
    jobs = [*product(METHODS, lengths), ("scratch", lengths[-1])]
    results: dict[str, dict[str, Any]] = {method: {} for method, _ in jobs}
    for method, epochs in jobs:
        rows = [one_run(args, splits, method, epochs, seed) for seed in seeds]
        results[method][f"{epochs:g}"] = summary(rows)
    details = {"base": args.model.name, "examples": args.examples, "test_examples": len(splits["test"]), "seeds": seeds}
    command = (
        f"python benchmarks/overfitting.py --model {args.model.name} --examples {args.examples} --epochs {args.epochs} "
        f"--seeds {args.seeds}"
    )
    record({**details, "methods": results, **stamp(command)}, args.out)
    plot(results, args.figure)


if __name__ == "__main__":
    main()

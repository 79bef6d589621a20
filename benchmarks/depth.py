"""Deeper networks on Fashion-MNIST: training loss and test accuracy after equal numbers of epochs.

    python benchmarks/depth.py [--seeds 1,2,3] [--at-once 6] [--data FOLDER]
    python benchmarks/depth.py fashion-resnets [--seeds 1,2,3] [--data FOLDER]

    fashion-depth     20 and 56 layers, plain and with shortcuts: the experiment of He et al., for a GPU
    fashion-resnets   ResNet-18 and ResNet-34, so small that a run takes minutes on one core: a quarter of their width
                      (16 to 128 channels), a 3×3 stem, images reduced to 14×14, and 12,000 of the training images, the
                      same for all seeds. All 10,000 test images.

Trains recipes/fashion-depth.toml by the public command. Each training loss is a mean over the steps since the previous
line of metrics.jsonl. The run folders are runs/NETWORK-SEED; unfinished runs are resumed, and finished runs are only
read. Results are saved as benchmarks/results/NAME.json and docs/images/NAME.png.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from random import Random
from statistics import mean
from typing import NamedTuple

import numpy as np
from provenance import RESULTS, record, stamp
from quality import row, train

from clearformer.checkpoint import RunFolder
from clearformer.data.files.arrays import read_idx
from clearformer.plots import plot_lines
from clearformer.training.journal import read_metrics

HERE = Path(__file__).parent
FILES = {"images": "train-images-idx3-ubyte.gz", "labels": "train-labels-idx1-ubyte.gz"}


class Experiment(NamedTuple):
    networks: Mapping[str, str]
    """Settings of each network, separated by spaces."""
    settings: str = ""
    """Settings of all networks."""
    images: int = 60_000
    """Training images; a twentieth of them is held out for validation."""
    batch: int = 256
    """Images per step."""
    limits: tuple[float, float] = (0.1, 0.6)
    """Of the vertical axis of the figure."""


EXPERIMENTS = {
    "fashion-depth": Experiment(
        {name: f"model.preset={name}" for name in ("plain20", "plain56", "resnet20", "resnet56")}
    ),
    "fashion-resnets": Experiment(
        {"resnet18": "model.depths=[2,2,2,2]", "resnet34": "model.depths=[3,4,6,3]"},
        "model.preset=resnet18-small model.stem_width=16 model.widths=[16,32,64,128] image.size=14 "
        "image.augment.crop=1 train.tokens=128 train.steps=1340 train.log_every=89 "
        "train.validate_every=268 train.save_every=268",
        images=12_000,
        batch=128,
        limits=(0.2, 0.8),
    ),
}


def losses(folder: Path, experiment: Experiment) -> list[tuple[float, float]]:
    """(epoch, mean training loss since the previous line of the metrics) for each line."""
    rows = (line for line in read_metrics(RunFolder(folder).metrics) if line["kind"] == "train")
    return [(line["step"] * experiment.batch / (0.95 * experiment.images), line["loss"]) for line in rows]


def write_part(data: Path, n: int, path: Path) -> Path:
    """Draw n training images, the same whenever this is called, and save them with their labels."""
    chosen = Random(0).sample(range(60_000), n)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{key: read_idx(data / name)[chosen] for key, name in FILES.items()})
    return path


def compared(experiment: Experiment, reports: Mapping[str, Mapping[int, Path]]) -> tuple[dict, dict]:
    """Return the results of each network, and its curve of training losses: epochs, and means over the seeds."""
    networks, lines = {}, {}
    for name, by_seed in reports.items():
        curves = [losses(report.parent, experiment) for report in by_seed.values()]
        epochs, last = [at for at, _ in curves[0]], [round(curve[-1][1], 4) for curve in curves]
        lines[name] = (epochs, [mean(level) for level in zip(*([loss for _, loss in curve] for curve in curves))])
        seeds = [{**row(report, seed), "training_loss": loss} for (seed, report), loss in zip(by_seed.items(), last)]
        networks[name] = {
            "training_loss": round(mean(last), 4),
            "valid_accuracy": mean_of([result["valid"]["accuracy"] for result in seeds]),
            "test_accuracy": mean_of([result["accuracy"] for result in seeds]),
            "test_loss": mean_of([result["loss"] for result in seeds]),
            "seeds": seeds,
        }
    return networks, lines


def mean_of(values: Sequence[float]) -> float:
    return round(mean(values), 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=EXPERIMENTS, default="fashion-depth")
    parser.add_argument("--seeds", default="1,2,3", help="comma-separated list")
    parser.add_argument("--at-once", type=int, default=1, help="number of runs that share the device")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data/fashion-mnist"))
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], help="a setting for `clearformer train`; repeatable"
    )
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/NAME.json")
    parser.add_argument("--figure", type=Path, help="default: docs/images/NAME.png")
    args = parser.parse_args()
    experiment, seeds = EXPERIMENTS[args.name], [int(seed) for seed in args.seeds.split(",")]
    settings = [*experiment.settings.split(), f"data.root={args.data.resolve()}", *args.settings]
    if experiment.images < 60_000:
        part = write_part(args.data, experiment.images, args.runs / f"{args.name}.npz")
        settings.append(f"data.train.path={part.resolve()}")

    def train_network(job: tuple[str, int]) -> Path:
        name, seed = job
        chosen = [*settings, *experiment.networks[name].split()]
        arguments = [str(HERE.parent / "recipes" / "fashion-depth.toml"), *(f"--set={key}" for key in chosen)]
        return train(args.runs / f"{name}-{seed}", arguments, seed)

    jobs = list(product(experiment.networks, seeds))
    with ThreadPoolExecutor(args.at_once) as pool:
        reports = dict(zip(jobs, pool.map(train_network, jobs)))
    if missing := [str(report) for report in reports.values() if not report.exists()]:
        sys.exit(f"unfinished runs: {', '.join(missing)}; see the .log file of each run, then repeat this command")
    by_network = {name: {seed: reports[name, seed] for seed in seeds} for name in experiment.networks}
    networks, lines = compared(experiment, by_network)
    curves = {name: [[round(x, 2), round(y, 4)] for x, y in zip(*line)] for name, line in lines.items()}
    figure = args.figure or HERE.parent / "docs" / "images" / f"{args.name}.png"
    plot_lines(lines, "epoch", "training loss, mean of seeds", figure, limits=experiment.limits)
    command = f"python benchmarks/depth.py {args.name} --seeds {args.seeds} --at-once {args.at_once}"
    out = args.out or RESULTS / f"{args.name}.json"
    record({"networks": networks, "training_loss_by_passes": curves, **stamp(command)}, out)


if __name__ == "__main__":
    main()

"""Without shortcuts, deeper networks have a higher training loss: the experiment of He et al. on Fashion-MNIST.

    python benchmarks/depth.py [--seeds 1,2,3] [--at-once 6] [--set data.root=FOLDER]

Trains recipes/fashion-depth.toml by the public command with 20 and 56 layers, plain and with shortcuts, and compares
the training losses after equal numbers of epochs, each a mean over the steps since the previous line of
metrics.jsonl. The test accuracy is recorded as well. The run folders are runs/NAME-SEED; unfinished runs are resumed,
and finished runs are only read. Results are saved as benchmarks/results/fashion-depth.json and
docs/images/fashion-depth.png.
"""

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from statistics import mean

from provenance import RESULTS, record, stamp
from quality import row, train

from clearformer.checkpoint import RunFolder
from clearformer.plots import plot_lines
from clearformer.training.journal import read_metrics

HERE = Path(__file__).parent
NETWORKS = ("plain20", "plain56", "resnet20", "resnet56")
BATCH, TRAINED_ON = 256, 57_000  # images per step; training images, approximately: a twentieth is held out


def losses(folder: Path) -> list[tuple[float, float]]:
    """(epoch, mean training loss since the previous line of the metrics) for each line."""
    rows = (line for line in read_metrics(RunFolder(folder).metrics) if line["kind"] == "train")
    return [(line["step"] * BATCH / TRAINED_ON, line["loss"]) for line in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1,2,3", help="comma-separated list")
    parser.add_argument("--at-once", type=int, default=1, help="number of runs that share the device")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], help="a setting for `clearformer train`; repeatable"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "fashion-depth.json")
    parser.add_argument("--figure", type=Path, default=HERE.parent / "docs" / "images" / "fashion-depth.png")
    args = parser.parse_args()
    jobs = list(product(NETWORKS, map(int, args.seeds.split(","))))

    def train_network(job: tuple[str, int]) -> Path:
        name, seed = job
        settings = [f"model.preset={name}", *args.settings]
        arguments = [str(HERE.parent / "recipes" / "fashion-depth.toml")]
        return train(args.runs / f"{name}-{seed}", [*arguments, *(f"--set={key}" for key in settings)], seed)

    with ThreadPoolExecutor(args.at_once) as pool:
        reports = dict(zip(jobs, pool.map(train_network, jobs)))
    if missing := [str(report) for report in reports.values() if not report.exists()]:
        sys.exit(f"unfinished runs: {', '.join(missing)}; see the .log file of each run, then repeat this command")
    networks, lines = {}, {}
    for name in NETWORKS:
        by_seed = {seed: report for (network, seed), report in reports.items() if network == name}
        curves = [losses(report.parent) for report in by_seed.values()]
        epochs, last = [at for at, _ in curves[0]], [round(curve[-1][1], 4) for curve in curves]
        lines[name] = (epochs, [mean(level) for level in zip(*([loss for _, loss in curve] for curve in curves))])
        seeds = [{**row(report, seed), "training_loss": loss} for (seed, report), loss in zip(by_seed.items(), last)]
        accuracy = round(mean(result["accuracy"] for result in seeds), 4)
        networks[name] = {"training_loss": round(mean(last), 4), "test_accuracy": accuracy, "seeds": seeds}
    curves = {name: [[round(x, 2), round(y, 4)] for x, y in zip(*line)] for name, line in lines.items()}
    across, up = "epoch", "training loss, mean of seeds"
    plot_lines(lines, across, up, args.figure, limits=(0.1, 0.6))
    command = f"python benchmarks/depth.py --seeds {args.seeds} --at-once {args.at_once}"
    record({"networks": networks, "training_loss_by_passes": curves, **stamp(command)}, args.out)


if __name__ == "__main__":
    main()

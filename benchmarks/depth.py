"""Deeper, and worse even in training, unless there are shortcuts: He et al.'s experiment on Fashion-MNIST.

    python benchmarks/depth.py [--seeds 1,2,3] [--at-once 6] [--set data.root=FOLDER]

recipes/fashion-depth.toml, by the public command, with 20 and 56 layers, plain and with shortcuts. What is compared is
the training loss after equally many passes, a mean over the steps since the line before; what the networks make of the
test pictures is told beside. Runs lie in runs/NAME-SEED: one that was cut off goes on, one that is finished is only
read. Numbers go to benchmarks/results/fashion-depth.json, their picture to docs/images/fashion-depth.png.
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
BATCH, TRAINED_ON = 256, 57_000  # the recipe's batch; pictures, nearly, as a twentieth of them validates


def losses(folder: Path) -> list[tuple[float, float]]:
    """(passes over the data, mean training loss since the line before)."""
    rows = (line for line in read_metrics(RunFolder(folder).metrics) if line["kind"] == "train")
    return [(line["step"] * BATCH / TRAINED_ON, line["loss"]) for line in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1,2,3", help="divided by commas")
    parser.add_argument("--at-once", type=int, default=1, help="trainings side by side on one device")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--set", dest="settings", action="append", default=[], help="passed on")
    parser.add_argument("--out", type=Path, default=RESULTS / "fashion-depth.json")
    parser.add_argument("--picture", type=Path, default=HERE.parent / "docs" / "images" / "fashion-depth.png")
    given = parser.parse_args()
    jobs = list(product(NETWORKS, map(int, given.seeds.split(","))))

    def one(job: tuple[str, int]) -> Path:
        name, seed = job
        settings = [f"model.preset={name}", *given.settings]
        arguments = [str(HERE.parent / "recipes" / "fashion-depth.toml")]
        return train(given.runs / f"{name}-{seed}", [*arguments, *(f"--set={key}" for key in settings)], seed)

    with ThreadPoolExecutor(given.at_once) as pool:
        reports = dict(zip(jobs, pool.map(one, jobs)))
    if missing := [str(report) for report in reports.values() if not report.exists()]:
        sys.exit(f"not finished: {', '.join(missing)}; see the logs beside the folders, and give the command again")
    found, lines = {}, {}
    for name in NETWORKS:
        own = {seed: report for (network, seed), report in reports.items() if network == name}
        curves = [losses(report.parent) for report in own.values()]
        passes, last = [at for at, _ in curves[0]], [round(curve[-1][1], 4) for curve in curves]
        lines[name] = (passes, [mean(level) for level in zip(*([loss for _, loss in curve] for curve in curves))])
        seeds = [{**row(report, seed), "training_loss": loss} for (seed, report), loss in zip(own.items(), last)]
        accuracy = round(mean(one["accuracy"] for one in seeds), 4)
        found[name] = {"training_loss": round(mean(last), 4), "test_accuracy": accuracy, "seeds": seeds}
    curves = {name: [[round(x, 2), round(y, 4)] for x, y in zip(*line)] for name, line in lines.items()}
    across, up = "passes over the training pictures", "training loss, mean of seeds"
    plot_lines(lines, across, up, given.picture, limits=(0.1, 0.6))
    command = f"python benchmarks/depth.py --seeds {given.seeds} --at-once {given.at_once}"
    record({"networks": found, "training_loss_by_passes": curves, **stamp(command)}, given.out)


if __name__ == "__main__":
    main()

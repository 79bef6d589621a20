"""Does momentum oscillate less than gradient descent, and is SGD slower? The surfaces of `clearformer plot optimizers`.

python benchmarks/oscillation.py [--seeds 0 1 2] [--out FILE]

For each learning rate, the ravine has the number of times that a path crosses the valley, and its largest distance from
the valley after five and after sixty updates; null means that it left the ravine. The plateau has the height after as
many updates, the spirals the loss after as many epochs, each at its best learning rate.
"""

import argparse
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

from provenance import RESULTS, record, stamp

from clearformer.claims.optimizers import UPDATES, N, Surface, race, run, seeded
from clearformer.claims.surfaces import PLACES
from clearformer.training.optim import OptimConfig

LABELS = {"gd": "gradient descent", "sgd": "SGD", "momentum": "momentum"}
SWINGING = ("gd", "momentum")
RATES = (0.03, 0.07, 0.1)


def swings(kind: str, rate: float) -> dict[str, Any]:
    """How a path crosses the valley of the ravine, y = 0."""
    path = run(Surface(PLACES["ravine"], seeded(0)), OptimConfig(kind=kind, lr=rate), N, UPDATES, 1, 0)["path"]
    across = [y for _, y in path]
    crossings = sum(a * b < 0 for a, b in pairwise(across))

    def farthest(start: int) -> float | None:
        distance = max(map(abs, across[start:]))
        return round(distance, 6) if math.isfinite(distance) and distance < 10 else None

    return {"crossings": crossings, "after_5": farthest(5), "after_60": farthest(60)}


def ends(runs: dict[str, Any]) -> dict[str, float]:
    return {kind: abs(round(runs[label]["loss"][-1], 4)) for kind, label in LABELS.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=RESULTS / "oscillation.json")
    args = parser.parse_args()
    ravine = {f"rate_{rate}".replace(".", "_"): {kind: swings(kind, rate) for kind in SWINGING} for rate in RATES}
    plateau, spirals = {}, {}
    for seed in args.seeds:
        raced = race(seed)
        plateau[f"seed_{seed}"] = ends(raced["surfaces"]["plateau"]["runs"])
        spirals[f"seed_{seed}"] = ends(raced["network"]["runs"])
    what = "momentum and SGD beside gradient descent"
    results = {"what": what, "ravine": ravine, "plateau": plateau, "spirals": spirals}
    record({**results, **stamp("python benchmarks/oscillation.py")}, args.out)


if __name__ == "__main__":
    main()

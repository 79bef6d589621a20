"""The norm of gradients 10, 50 and 100 steps back: the values of `clearformer plot gradients`, for several seeds.

python benchmarks/gradients.py [--seeds 0 1 2] [--out FILE]

`at` has the geometric means over the seeds, since norms differ by orders of magnitude; `loss` has means.
"""

import argparse
from pathlib import Path
from statistics import fmean, geometric_mean
from tempfile import TemporaryDirectory
from typing import Any

from provenance import RESULTS, record, stamp

import clearformer


def over_seeds(values: list[Any], mean: Any) -> Any:
    """Return the mean of each number in nested dictionaries of one shape."""
    if isinstance(values[0], dict):
        return {key: over_seeds([value[key] for value in values], mean) for key in values[0]}
    return mean(values) if all(values) else fmean(values)  # beyond a receptive field, the norm is 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=RESULTS / "gradients.json")
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        runs = [clearformer.plot("gradients", Path(folder) / "gradients.png", seed) for seed in args.seeds]
    result = {
        "seeds": args.seeds,
        "at": over_seeds([run["at"] for run in runs], geometric_mean),
        "loss": over_seeds([run["loss"] for run in runs], fmean),
        "by_seed": {str(seed): {"at": run["at"], "loss": run["loss"]} for seed, run in zip(args.seeds, runs)},
    }
    seeds = " ".join(map(str, args.seeds))
    record({**result, **stamp(f"python benchmarks/gradients.py --seeds {seeds}")}, args.out)


if __name__ == "__main__":
    main()

"""What batch norm and the unit do to eight convolutions: `clearformer plot batch-norm` with several seeds.

python benchmarks/batch_norm.py [--seeds 0 1 2] [--out FILE]

For each unit, with and without batch norm: the mean loss of the last ten of 200 steps, and the gradient norm of the
first convolution at the first step.
"""

import argparse
from pathlib import Path
from statistics import fmean

from provenance import RESULTS, record, stamp

from clearformer.claims.batch_norm import LAST, train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=RESULTS / "batch-norm.json")
    args = parser.parse_args()
    trained = [train(seed) for seed in args.seeds]
    names = trained[0]["runs"]
    losses = {name: [round(fmean(one["runs"][name]["loss"][-LAST:]), 4) for one in trained] for name in names}
    slopes = {name: [float(f"{one['runs'][name]['slope'][0]:.3g}") for one in trained] for name in names}
    results = {
        "what": "eight convolutions on gratings, with and without batch norm",
        "chance": round(trained[0]["chance"], 4),
        "seeds": args.seeds,
        "loss": {name: round(fmean(values), 4) for name, values in losses.items()},
        "loss_by_seed": losses,
        "first_gradient": slopes,
    }
    record({**results, **stamp("python benchmarks/batch_norm.py")}, args.out)


if __name__ == "__main__":
    main()

"""The norm of gradients 10, 50 and 100 steps back: the values of `clearformer plot gradients`.

python benchmarks/gradients.py [--seed 0] [--out FILE]
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from provenance import RESULTS, record, stamp

import clearformer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS / "gradients.json")
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        values = clearformer.plot("gradients", Path(folder) / "gradients.png", args.seed)
    results = {key: values[key] for key in ("title", "seed", "at", "loss")}
    record({**results, **stamp(f"python benchmarks/gradients.py --seed {args.seed}")}, args.out)


if __name__ == "__main__":
    main()

"""How much of a gradient arrives 10, 50 and 100 steps back: what `clearformer plot gradients` draws, as numbers.

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
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        numbers = clearformer.plot("gradients", Path(folder) / "gradients.png", given.seed)
    kept = {key: numbers[key] for key in ("title", "seed", "at", "loss")}
    record({**kept, **stamp(f"python benchmarks/gradients.py --seed {given.seed}")}, given.out)


if __name__ == "__main__":
    main()

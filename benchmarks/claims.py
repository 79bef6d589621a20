"""The values of a figure that is computed from a seed, without its curves; and the figure for docs/images.

python benchmarks/claims.py rates depth covariate-shift convolutions [--seed 0]
"""

import argparse
from pathlib import Path

from provenance import RESULTS, record, stamp

import clearformer

IMAGES = Path(__file__).parent.parent / "docs" / "images"
CURVES = ("panels", "norms", "clipping", "figure", "picture")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="+", help="names of figures of `clearformer plot` that need no model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    # Before the first image is written, which would make the commit a dirty one.
    provenance = {name: stamp(f"python benchmarks/claims.py {name} --seed {args.seed}") for name in args.figures}
    for name in args.figures:
        values = clearformer.plot(name, IMAGES / f"{name}.png", args.seed)
        results = {key: value for key, value in values.items() if key not in CURVES}
        record({**results, **provenance[name]}, args.results / f"claims-{name}.json")


if __name__ == "__main__":
    main()

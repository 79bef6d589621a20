"""Run `clearformer compare` and record the results of each contender with the same data and budget.

python benchmarks/contest.py compare-multi30k [--at-once 9]
"""

import argparse
from pathlib import Path

from provenance import RESULTS, record, stamp

import clearformer

RECIPES = Path(__file__).parent.parent / "recipes"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="name of a comparison in recipes/, without .toml")
    parser.add_argument("--at-once", type=int, default=1, help="number of runs that share the device")
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args()
    comparison = clearformer.compare(RECIPES / f"{args.name}.toml", at_once=args.at_once, say=print)
    command = f"python benchmarks/contest.py {args.name} --at-once {args.at_once}"
    results = {key: value for key, value in comparison.items() if key != "page"}
    record({**results, **stamp(command)}, args.results / f"{args.name}.json")


if __name__ == "__main__":
    main()

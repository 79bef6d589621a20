"""A comparison by `clearformer compare`, recorded: what each contender reaches with the same data and budget.

python benchmarks/contest.py compare-multi30k [--at-once 9]
"""

import argparse
from pathlib import Path

from provenance import RESULTS, record, stamp

import clearformer

RECIPES = Path(__file__).parent.parent / "recipes"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="a comparison of recipes/")
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    found = clearformer.compare(RECIPES / f"{given.name}.toml", at_once=given.at_once, say=print)
    command = f"python benchmarks/contest.py {given.name} --at-once {given.at_once}"
    kept = {key: value for key, value in found.items() if key != "page"}
    record({**kept, **stamp(command)}, given.results / f"{given.name}.json")


if __name__ == "__main__":
    main()

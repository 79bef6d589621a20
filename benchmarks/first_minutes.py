"""How long `make demo` takes in an empty clone, installation included, and the BLEU that its model reaches.

python benchmarks/first_minutes.py [--out benchmarks/results/first-minutes.json]
"""

import argparse
import re
import subprocess
import tempfile
import time
from pathlib import Path

from provenance import RESULTS, record, stamp


def timed(command: list[str]) -> float:
    begun = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    return time.monotonic() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / "first-minutes.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        subprocess.run(["git", "clone", "--quiet", str(RESULTS.parent.parent), name], check=True)
        begun = time.monotonic()
        done = subprocess.run(["make", "demo"], cwd=name, check=True, capture_output=True, text=True)
        seconds = time.monotonic() - begun
        helped = min(timed([f"{name}/.venv/bin/clearformer", "--help"]) for _ in range(5))
    scores = {title: float(value) for value, title in re.findall(r"^BLEU +([\d.]+)  (.+)$", done.stdout, re.MULTILINE)}
    bleu = dict(zip(("random_split", "unseen_combinations", "one_clause_deeper", "dictionary"), scores.values()))
    what = {"what": "make demo in an empty clone", "seconds": round(seconds), "help_seconds": round(helped, 2)}
    record({**what, "bleu": bleu, **stamp("make demo")}, arguments.out)


if __name__ == "__main__":
    main()

"""Absolute or relative positions, for sentences longer than in training.

python benchmarks/longer_sentences.py [--seeds 0 1 2] [--out FILE]

The Transformer of `clearformer plot agreement`, trained on clauses of at most ten words, with each kind of positions:
how often it knows the number of the noun at the verb, by the words of the clause in between. Guessing has 0.5.
"""

import argparse
from functools import partial
from pathlib import Path
from statistics import fmean

from provenance import RESULTS, record, stamp

from clearformer.claims.agreement import BINS, REGIMES, measure, transformer

KINDS = {"absolute": ("sinusoidal",), "relative": ("rotary", "alibi", "t5"), "none": ("none",)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=RESULTS / "longer-sentences.json")
    args = parser.parse_args()
    provenance = stamp("python benchmarks/longer_sentences.py")
    networks = {kind: partial(transformer, positions=kind) for kinds in KINDS.values() for kind in kinds}
    runs = [measure(seed, networks, ("short",))["accuracy"]["short"] for seed in args.seeds]
    accuracy = {
        kind: {
            f"{low}-{high}": {
                "mean": round(fmean(run[kind][i] for run in runs), 4),
                "seeds": [round(run[kind][i], 4) for run in runs],
            }
            for i, (low, high) in enumerate(BINS)
        }
        for kind in networks
    }
    what = "accuracy of noun-verb agreement by words of the clause, trained on short clauses, by kind of positions"
    record({"what": what, "seeds": args.seeds, "trained_on": REGIMES["short"], **accuracy, **provenance}, args.out)


if __name__ == "__main__":
    main()

"""Peak memory of preparing a corpus of ten million lines and starting to train on it.

    python benchmarks/memory.py [--lines 10000000] [--out benchmarks/results/memory.json]

Writes this number of random sentence pairs (about a gigabyte) to a temporary folder, runs `clearformer train --pairs`
on them for three steps of a tiny model, and records the peak memory and the duration of the process. A second run on
a tenth of the lines shows how both grow.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from provenance import RESULTS, record, stamp

WORDS = 30_000


def write_pairs(path, n_lines, chunk=100_000):
    """Sentences of 4 to 16 words whose frequencies fall off as in real text; the target is the source reversed."""
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(rng.choice(letters, rng.integers(2, 9))) for _ in range(WORDS)]
    weights = 1 / np.arange(10, WORDS + 10)
    with open(path, "w", encoding="utf-8") as file:
        for start in range(0, n_lines, chunk):
            n = min(chunk, n_lines - start)
            lengths = rng.integers(4, 17, n)
            chosen = iter(rng.choice(WORDS, int(lengths.sum()), p=weights / weights.sum()).tolist())
            for length in lengths.tolist():
                sentence = [words[next(chosen)] for _ in range(length)]
                file.write(" ".join(sentence) + "\t" + " ".join(reversed(sentence)) + "\n")


def measure(n_lines, folder):
    path = folder / f"{n_lines}.tsv"
    write_pairs(path, n_lines)
    settings = ["train.steps=3", "train.tokens=1024", "train.accumulation=1", "model.preset=transformer-tiny"]
    command = [
        sys.executable,
        "-m",
        "clearformer",
        "train",
        "--pairs",
        str(path),
        "--out",
        str(folder / f"run{n_lines}"),
    ]
    begun = time.monotonic()
    subprocess.run([*command, *(part for s in settings for part in ("--set", s))], check=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    size = path.stat().st_size / 1e6
    path.unlink()
    return {
        "lines": n_lines,
        "file_mb": round(size),
        "peak_mb": round(peak),
        "seconds": round(time.monotonic() - begun),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--out", type=Path, default=RESULTS / "memory.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:  # the smaller one first: ru_maxrss is the maximum over all children
        tenth, whole = (measure(n, Path(name)) for n in (arguments.lines // 10, arguments.lines))
    record({"tenth": tenth, "whole": whole, **stamp("python benchmarks/memory.py")}, arguments.out)


if __name__ == "__main__":
    main()

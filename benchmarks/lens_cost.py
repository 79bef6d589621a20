"""What it costs to read one attention head: a forward pass with the lens against one without it, in turn.

    python benchmarks/lens_cost.py [--length 512] [--runs 15] [--out FILE]

Transformer-base (Vaswani et al. 2017) on random tokens, one pair of 512 and 512, float32, two threads of a CPU. Each
round times a plain forward pass, one that keeps a head of cross-attention, one that keeps a whole layer, and a second
plain one; `overhead` is the median over the rounds of the ratio to the plain pass of the same round, minus 1; `noise`
is the same of the second plain pass: an overhead below it cannot be distinguished from 0.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from provenance import RESULTS, record, stamp

from clearformer.data.batch import Batch
from clearformer.lens.session import Lens
from clearformer.models.transformer import Transformer, TransformerConfig

PATTERN = "decoder.blocks.3.cross.pattern"
KEEP: dict[str, list[str]] = {"plain": [], "head": [f"{PATTERN}[2]"], "layer": [PATTERN], "plain_again": []}


@torch.inference_mode()
def seconds_of(model: Any, batch: Batch, keep: list[str]) -> float:
    start = time.perf_counter()
    if keep:
        with Lens(model, keep=keep):
            model(batch)
    else:
        model(batch)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--out", type=Path, default=RESULTS / "lens-cost.json")
    given = parser.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    config = TransformerConfig()
    model = Transformer(config).eval()
    T = given.length
    source, target = (torch.randint(37000, (1, T)) for _ in range(2))
    batch = Batch(source, torch.ones(1, T).bool(), target, target)
    for keep in KEEP.values():
        seconds_of(model, batch, keep)
    rounds = [{name: seconds_of(model, batch, keep) for name, keep in KEEP.items()} for _ in range(given.runs)]
    over = {name: [row[name] / row["plain"] - 1 for row in rounds] for name in KEEP if name != "plain"}
    result = {
        **stamp("python benchmarks/lens_cost.py"),
        "length": T,
        "runs": given.runs,
        "forward_seconds": round(statistics.median(row["plain"] for row in rounds), 4),
        "head_overhead_percent": round(100 * statistics.median(over["head"]), 2),
        "layer_overhead_percent": round(100 * statistics.median(over["layer"]), 2),
        "noise_percent": round(100 * statistics.median(over["plain_again"]), 2),
        "head_overhead_percent_by_round": [round(100 * value, 2) for value in over["head"]],
        "noise_percent_by_round": [round(100 * value, 2) for value in over["plain_again"]],
    }
    record(result, given.out)


if __name__ == "__main__":
    main()

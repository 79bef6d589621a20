"""The speed of the matrix products of Transformer-base on a CPU, beside a large square product.

    python benchmarks/cpu_products.py [--rows 128] [--threads 2] [--out FILE]

128 rows are 32 sentences with 4 hypotheses each. `packed N` is oneDNN with weights packed for N rows, as decoding uses
it with 64; `parts of N` splits the rows; `plain` is torch's product. `square` is the ceiling, 2048×2048 by 2048×2048,
packed. All figures are GFLOP/s, the best of eight turns.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from provenance import RESULTS, record, stamp
from torch import Tensor
from torch.nn import functional as F

SHAPES = {
    "qkv": (512, 1536),
    "attention output": (512, 512),
    "up": (512, 2048),
    "down": (2048, 512),
    "vocabulary": (512, 32000),
}
PACKED = (1, 16, 64, 128, 768)
PARTS = (32, 64)
TURNS = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS / "cpu-products.json")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with torch.no_grad():
        results: dict[str, Any] = {"square": square()}
        results |= {name: measure(args.rows, *shape) for name, shape in SHAPES.items()}
    record({"gflops": results, "rows": args.rows, **stamp("python benchmarks/cpu_products.py")}, args.out)


def measure(rows: int, inputs: int, outputs: int) -> dict[str, int]:
    weight, x = torch.randn(outputs, inputs), torch.randn(rows, inputs)
    flop = 2 * rows * inputs * outputs
    speeds = {f"packed {n}": speed(flop, product(x, pack(weight, n))) for n in PACKED}
    packed = pack(weight, 64)
    for n in PARTS:
        parts = [product(part, packed) for part in x.split(n)]
        speeds[f"parts of {n}"] = speed(flop, lambda parts=parts: [part() for part in parts])
    return speeds | {"plain": speed(flop, lambda: F.linear(x, weight))}


def square(n: int = 2048) -> int:
    return speed(2 * n**3, product(torch.randn(n, n), pack(torch.randn(n, n), n)))


def pack(weight: Tensor, rows: int) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight, rows)


def product(x: Tensor, packed: Tensor) -> Callable[[], Tensor]:
    return lambda: torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")


def speed(flop: float, work: Callable[[], Any]) -> int:
    repeats, best = max(1, int(2e9 / flop)), float("inf")
    for _ in range(TURNS):
        begin = time.perf_counter()
        for _ in range(repeats):
            work()
        best = min(best, (time.perf_counter() - begin) / repeats)
    return round(flop / best / 1e9)


if __name__ == "__main__":
    main()

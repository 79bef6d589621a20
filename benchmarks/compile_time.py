"""Seconds that compilation adds to `clearformer train`, Transformer-base on pairs, with and without a warm cache.

    python benchmarks/compile_time.py --pairs FILE [--tokens 16384] [--steps 150] [--out FILE]

The same run three times, each in a fresh process: recorded steps only (train.compile = graph), compiled blocks with an
empty cache of the compiler, and again with the cache that the second run left. The difference to the first run is the
time of compilation, because the steps themselves take a few seconds. The recorded metrics show that speed no longer
changes at the end: `rate` is the median of the last third in target tokens per second.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from provenance import RESULTS, record, stamp

SETTINGS = (
    "train.validate_every=1000000",
    "train.save_every=1000000",
    "train.log_every=5",
    "evaluate.max_validation=2",
)
RUNS = {"graph": "graph", "cold": "blocks", "warm": "blocks"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", required=True, help="as for `clearformer train`")
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--out", type=Path, default=RESULTS / "compile-time.json")
    args = parser.parse_args()
    settings = [*SETTINGS, f"train.tokens={args.tokens}", f"train.steps={args.steps}"]
    results: dict[str, object] = {"device": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"}
    with tempfile.TemporaryDirectory() as folder:
        for name, how in RUNS.items():
            results[name] = run(Path(folder), name, args.pairs, [*settings, f"train.compile={how}"])
            print(name, json.dumps(results[name]), flush=True)
            seconds = {key: results[key]["seconds"] for key in RUNS if key in results}
            added = {f"{key}_seconds": round(seconds[key] - seconds["graph"], 1) for key in seconds if key != "graph"}
            record({**added, **results, **stamp("python benchmarks/compile_time.py --pairs FILE")}, args.out)


def run(folder: Path, name: str, pairs: str, settings: list[str]) -> dict[str, float]:
    command = [sys.executable, "-m", "clearformer", "train", "--pairs", pairs, "--model", "transformer-base"]
    words = [word for setting in settings for word in ("--set", setting)]
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "TRITON_CACHE_DIR": str(folder / "triton")}
    begun = time.monotonic()
    subprocess.run([*command, "--out", str(folder / name), *words], check=True, env={**os.environ, **caches})
    seconds = time.monotonic() - begun
    rows = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
    rates = [row["tokens_per_s"] for row in rows if row["kind"] == "train"]
    return {"seconds": round(seconds, 1), "rate": round(statistics.median(rates[-len(rates) // 3 :]))}


if __name__ == "__main__":
    main()

"""How time and memory grow: training against context, batch, vocabulary and depth; decoding against the position.

    python benchmarks/growth.py [--device cuda] [--small] [--only context] [--out FILE] [--figure FILE]

Training steps of the public trainer on GPT-2 124M (bfloat16 on CUDA, dropout 0.1, AdamW with an average of the weights,
random tokens, uncompiled), with all activations stored and with train.recompute = "blocks": one row against context,
rows of 1,024 tokens against the batch, and 8 such rows against vocabulary and depth. A step is timed in three runs of
about half a second, after two steps of warm-up; the result is the median. Peak memory is the allocated memory on CUDA,
and the resident memory of the process elsewhere. Decoding is greedy, one text, float32, by the decoder of `generate`:
recorded steps on CUDA, the plain decoder elsewhere.

    slope           the exponent p of cost ∝ size^p, fitted to all sizes
    last_doubling   the factor between the last two sizes, per doubling
    each            the increase from the first to the last size, per unit: token, row, block

Every point is saved when it is measured; a repeated command continues. --small measures tiny sizes, to test the script.
The figure needs matplotlib; --draw only draws it, from the results.
"""

import argparse
import gc
import json
import math
import statistics
import time
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from provenance import RESULTS, record, stamp

from clearformer.checkpoint import RunFolder
from clearformer.data.batch import TextBatch
from clearformer.errors import MachineError
from clearformer.generation.decode import DecodeConfig
from clearformer.generation.engine import Decoder, finished
from clearformer.memory import peak_mb
from clearformer.models.build import build_model
from clearformer.models.gpt import GPTConfig
from clearformer.objectives.causal_lm import CausalLM, CausalLMConfig
from clearformer.training.compiling import compiled
from clearformer.training.config import TrainConfig
from clearformer.training.distributed import World
from clearformer.training.loop import Trainer
from clearformer.training.optim import OptimConfig
from clearformer.training.precision import pick_device
from clearformer.training.recompute import in_chunks, recompute_blocks
from clearformer.training.schedules import ScheduleConfig
from clearformer.training.statistics import set_training

FIGURE = Path(__file__).parent.parent / "docs" / "images" / "growth.png"
HOW = ("none", "blocks")  # train.recompute
SWEEPS = ("context", "batch", "vocabulary", "depth")

# Of each sweep: the sizes, and the settings that stay the same.
GPT2: dict[str, Any] = {
    "model": {},
    "context": ([1024, 2048, 4096, 8192, 16384, 32768], {"batch": 1}),
    "batch": ([1, 2, 4, 8, 16], {"context": 1024}),
    "vocabulary": ([8192, 16384, 32768, 65536, 131072], {"context": 1024, "batch": 8}),
    "depth": ([6, 12, 24, 48], {"context": 1024, "batch": 8}),
    "compiled": 8192,  # context
    "decode": (4096, 256),  # positions, window
    "seconds": 0.5,  # per timing
}
SMALL: dict[str, Any] = {
    "model": {"d_model": 32, "d_ff": 64, "n_heads": 2, "n_layers": 2, "vocab": 97},
    "context": ([64, 128, 256], {"batch": 1}),
    "batch": ([1, 2, 4], {"context": 64}),
    "vocabulary": ([101, 202, 404], {"context": 64, "batch": 2}),
    "depth": ([1, 2, 4], {"context": 64, "batch": 2}),
    "compiled": None,
    "decode": (64, 16),
    "seconds": 0.01,
}


def build_trainer(config: GPTConfig, recompute: str, compile: str, device: torch.device, folder: Path) -> Trainer:
    """The trainer that `clearformer train` would build, for plain or compiled steps."""
    torch.manual_seed(0)
    with device:
        model = build_model(config)
    train = TrainConfig(recompute=recompute, compile=compile)
    if recompute == "blocks":
        recompute_blocks(model)
    objective = compiled(in_chunks(CausalLM(CausalLMConfig()), train.recompute), model, train.compile)
    optimizer = OptimConfig(kind="adamw", lr=1e-4).build(model)
    set_training(model)
    return Trainer(model, objective, optimizer, ScheduleConfig(), train, RunFolder(folder), device, World())


def measure(
    settings: dict[str, Any], sizes: dict[str, int], recompute: str, device: torch.device, compile: str = "off"
) -> dict[str, float] | None:
    """Seconds and peak memory of a step, or None if it does not fit into memory."""
    context, batch = sizes["context"], sizes["batch"]
    model = {**settings["model"], "max_length": context}
    model |= {"vocab": sizes["vocabulary"]} if "vocabulary" in sizes else {}
    model |= {"n_layers": sizes["depth"]} if "depth" in sizes else {}
    config = GPTConfig(**model)
    with TemporaryDirectory() as folder:
        try:
            trainer = build_trainer(config, recompute, compile, device, Path(folder))
            tokens = torch.randint(config.vocab, (batch, context + 1), device=device)
            rows = TextBatch(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), n_tokens=batch * context)

            def seconds_of(n: int) -> float:
                wait(device)
                start = time.perf_counter()
                for _ in range(n):
                    trainer.step([rows], rows.n_tokens)
                wait(device)
                return (time.perf_counter() - start) / n

            seconds_of(2)
            reset_peak(device)
            n = max(2, min(20, round(settings["seconds"] / seconds_of(1))))
            seconds = statistics.median(seconds_of(n) for _ in range(3))
            return {"seconds": rounded(seconds), "peak_gb": rounded(peak_gb(device))}
        except torch.OutOfMemoryError:
            return None
        finally:
            trainer = None  # type: ignore[assignment]
            free(device)


def decode(settings: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Milliseconds per token in each window of positions: the difference between two decodings, one window apart."""
    n_positions, window = settings["decode"]
    config = GPTConfig(**{**settings["model"], "max_length": n_positions + 2})
    torch.manual_seed(0)
    with device:
        model = build_model(config).eval()
    decoder, first = Decoder(model), torch.zeros(1, dtype=torch.long)
    search = DecodeConfig(beam=1, min_length=n_positions)

    def seconds_to(end: int) -> float:
        wait(device)
        start = time.perf_counter()
        finished(decoder.decode(first[None], None, first, config.vocab - 1, torch.tensor([end]), search, 1))
        wait(device)
        return time.perf_counter() - start

    with torch.inference_mode():
        seconds_to(n_positions)  # warm-up: steps of all capacities are recorded
        ends = range(0, n_positions + 1, window)
        seconds = [statistics.median(seconds_to(max(1, end)) for _ in range(3)) for end in ends]
    free(device)
    milliseconds = [rounded(1e3 * (b - a) / window) for a, b in pairwise(seconds)]
    quarter = max(1, len(milliseconds) // 4)
    first_quarter, last_quarter = statistics.mean(milliseconds[:quarter]), statistics.mean(milliseconds[-quarter:])
    return {
        "positions": list(ends[1:]),
        "milliseconds": milliseconds,
        "first_quarter": rounded(first_quarter),
        "last_quarter": rounded(last_quarter),
        "last_over_first": rounded(last_quarter / first_quarter),
    }


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def free(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def reset_peak(device: torch.device) -> None:
    """Forget earlier peaks. On Linux, 5 in clear_refs resets the peak of the resident memory."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    elif (switch := Path("/proc/self/clear_refs")).exists():
        switch.write_text("5")


def peak_gb(device: torch.device) -> float:
    return torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else peak_mb() / 1e3


def rounded(value: float) -> float:
    return float(f"{value:.4g}")


def growth_of(rows: dict[str, dict[str, float] | None]) -> dict[str, dict[str, float]]:
    """The slope, the factor of the last doubling, and the increase per unit, of time and of memory."""
    fits = {int(size): row for size, row in rows.items() if row is not None}
    if len(fits) < 2:
        return {}
    sizes, result = sorted(fits), {}
    for key in ("seconds", "peak_gb"):
        costs = [fits[size][key] for size in sizes]
        slope = statistics.linear_regression([math.log(x) for x in sizes], [math.log(y) for y in costs]).slope
        last = (costs[-1] / costs[-2]) ** (1 / math.log2(sizes[-1] / sizes[-2]))
        each = (costs[-1] - costs[0]) / (sizes[-1] - sizes[0])
        result[key] = {"slope": rounded(slope), "last_doubling": rounded(last), "each": rounded(each)}
    return result


def summarise(result: dict[str, Any]) -> dict[str, Any]:
    """Add slopes, the cost of recomputation as ratios, and a title."""
    sweeps = [name for name in SWEEPS if name in result]
    result["growth"] = {name: {how: growth_of(rows) for how, rows in result[name].items()} for name in sweeps}
    result["recompute_over_none"] = {
        name: {
            size: {key: rounded(row[key] / stored[key]) for key in row}
            for size, row in result[name].get("blocks", {}).items()
            if row is not None and (stored := result[name].get("none", {}).get(size)) is not None
        }
        for name in sweeps
    }
    context = {size: row for size, row in result.get("context", {}).get("blocks", {}).items() if row is not None}
    if context:
        size, row = list(context.items())[-1]
        title = (
            f"{result['model']} on {result['device']}: with recomputation, a context of {int(size):,} tokens takes "
            f"{row['peak_gb']:.1f} GB and {row['seconds']:.2f} s per step"
        )
        result = {"title": title} | {key: value for key, value in result.items() if key != "title"}
    return result


def measure_all(result: dict[str, Any], settings: dict[str, Any], device: torch.device, only: str, path: Path) -> None:
    """Measure every point that `result` lacks, and save after each."""

    def save() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(summarise(result), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    for name in SWEEPS:
        sizes, fixed = settings[name]
        for how in HOW if only in name else ():
            rows = result.setdefault(name, {}).setdefault(how, {})
            for size in sizes:
                if str(size) not in rows:
                    rows[str(size)] = measure(settings, {**fixed, name: size}, how, device)
                    print(f"{name:10} {how:6} {size:>7,} {rows[str(size)] or 'does not fit into memory'}", flush=True)
                    save()
    if only in "decode" and "decode" not in result:
        result["decode"] = decode(settings, device)
        print("decode", result["decode"], flush=True)
        save()
    for how in HOW if only in "compiled" and settings["compiled"] and device.type == "cuda" else ():
        rows = result.setdefault("compiled", {"context": settings["compiled"]})
        if how not in rows:
            sizes = {"context": settings["compiled"], "batch": 1}
            rows[how] = measure(settings, sizes, how, device, compile="blocks")
            torch._dynamo.reset()
            print("compiled  ", how, rows[how], flush=True)
            save()


def draw(result: dict[str, Any], path: Path) -> None:
    try:
        from clearformer.plots import plot_growth
    except MachineError as error:
        print(f"no figure was drawn: {error}")
        return
    plot_growth(result, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--small", action="store_true", help="tiny sizes, for a test of this script in seconds")
    parser.add_argument("--only", default="", help="measure only sweeps with this text in their name")
    parser.add_argument("--draw", action="store_true", help="only draw the figure, from the results in --out")
    parser.add_argument("--out", type=Path, default=RESULTS / "growth.json")
    parser.add_argument("--figure", type=Path, default=FIGURE)
    args = parser.parse_args()
    if args.draw:
        draw(json.loads(args.out.read_text(encoding="utf-8")), args.figure)
        return
    device, settings = pick_device(args.device), SMALL if args.small else GPT2
    is_cuda = device.type == "cuda"
    if is_cuda:
        torch.cuda.set_device(device)
    start = {
        "model": "a tiny GPT" if args.small else "GPT-2 124M",
        "device": torch.cuda.get_device_name(device) if is_cuda else device.type,
        "precision": "bfloat16" if is_cuda else "float32",
        **stamp(f"python benchmarks/growth.py{' --small' if args.small else ''}"),
    }
    known = json.loads(args.out.read_text(encoding="utf-8")) if args.out.exists() else {}
    is_same = all(known.get(key) == start[key] for key in ("model", "device", "commit", "versions"))
    result = {**known, **start} if is_same else start
    measure_all(result, settings, device, args.only, args.out)
    result = summarise(result)
    record(result, args.out)
    if {*SWEEPS, "decode"} <= result.keys():
        draw(result, args.figure)


if __name__ == "__main__":
    main()

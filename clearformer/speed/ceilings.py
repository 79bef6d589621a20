"""What the machine reaches with torch alone, measured before everything else.

matrix products    2 n³ / seconds                 in the precision of the rows: bfloat16 on a GPU, float32 on a CPU
memory             bytes read and written / seconds, of a copy that is larger than the caches
dispatch           seconds per operation on eight numbers: launching a kernel, or calling one
"""

import time
from collections.abc import Callable
from typing import Any

from clearformer.speed.context import Context, synchronize


def measure(context: Context) -> dict[str, Any]:
    """TFLOP/s, GB/s and microseconds per small operation of the device, and its name."""
    import torch

    from clearformer.checkpoint import cpu_name

    on_gpu = context.device == "cuda"
    torch.set_num_threads(context.threads)
    n, dtype = (8192, torch.bfloat16) if on_gpu else (1024, torch.float32)
    a, b = (torch.randn(n, n, device=context.device, dtype=dtype) for _ in range(2))
    source = torch.ones(2**28 if on_gpu else 2**26, device=context.device)
    target = torch.empty_like(source)
    few = torch.ones(8, device=context.device)
    with torch.inference_mode():
        products = best(lambda: a @ b, context, 10)
        copies = best(lambda: target.copy_(source), context, 5)
        small = best(lambda: few.add(1.0), context, 2000)
    return {
        "device": torch.cuda.get_device_name() if on_gpu else cpu_name(),
        "threads": context.threads,
        "precision": str(dtype).removeprefix("torch."),
        "matmul_tflops": float(f"{2 * n**3 / products / 1e12:.4g}"),
        "memory_gb_per_s": float(f"{2 * source.nbytes / copies / 1e9:.4g}"),
        "dispatch_us": float(f"{small * 1e6:.3g}"),
    }


def best(work: Callable[[], object], context: Context, n: int, repeats: int = 5) -> float:
    """Seconds per call: the best of a few repeats of n calls, since a ceiling is what the machine can do."""
    times = []
    for _ in range(repeats + 1):
        synchronize(context.device)
        start = time.perf_counter()
        for _ in range(n):
            work()
        synchronize(context.device)
        times.append((time.perf_counter() - start) / n)
    return min(times[1:])

"""The time of a rehearsed step: the sum over its operations.

    Roofline     max(flops / rate, bytes / bandwidth) + launch        of a device that is not here
    Stopwatch    each distinct operation is run on this machine, once for all later plans

Both add the time that the host needs between operations. A recorded step (a CUDA graph) needs a third of it.
"""

import json
import statistics
import time
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._pytree import tree_unflatten

from clearformer.checkpoint import write_json
from clearformer.planning.devices import Device
from clearformer.planning.ledger import Call, Form
from clearformer.planning.rehearsal import Rehearsed

MOST = 2**31  # bytes of an operation that is measured; larger ones are computed
LEAST_RUNS, SECONDS = 3, 0.02  # per operation
ROTATED = 2**25  # bytes of the inputs that are used in turn, so that they do not stay in the caches


class Clock(Protocol):
    def seconds(self, call: Call) -> float: ...
    def step(self, step: Rehearsed) -> float: ...


class Roofline:
    """The time that a device needs at its rates."""

    def __init__(self, device: Device, is_recorded: bool = False) -> None:
        self.device = device
        self.launch = device.launch_us * 1e-6 / (3 if is_recorded else 1)

    def seconds(self, call: Call) -> float:
        device = self.device
        return max(call.flops / (device.matmul_tflops * 1e12), call.n_bytes / (device.memory_gb_per_s * 1e9))

    def step(self, step: Rehearsed) -> float:
        return sum(n * (self.seconds(call) + self.launch) for call, n in step.calls)


class Stopwatch:
    """The time of each operation as measured here. `path` keeps the measurements for later plans.

    `overhead` is the time per operation, views included, that Python and autograd need around it.
    """

    def __init__(self, roofline: Roofline, path: Path | None = None, overhead: float = 0.0) -> None:
        self.roofline, self.path, self.overhead = roofline, path, overhead
        self.device = torch.device(roofline.device.name)
        self.times: dict[str, float] = read_times(path)
        self.draw = torch.Generator().manual_seed(0)

    def step(self, step: Rehearsed) -> float:
        host = self.overhead * (step.n_views + sum(n for _, n in step.calls))
        return host + sum(n * self.seconds(call) for call, n in step.calls)

    def seconds(self, call: Call) -> float:
        if (key := call.key) not in self.times:
            self.times[key] = float(f"{self.measured(call):.4g}")
        return self.times[key]

    def measured(self, call: Call) -> float:
        if call.n_bytes > MOST:
            return self.roofline.seconds(call)
        try:
            sets = [self.arguments(call) for _ in range(max(1, min(4, ROTATED // max(1, call.n_bytes))))]
            with torch.no_grad():
                return self.time(call.function, sets)
        except (RuntimeError, IndexError, NotImplementedError):  # the values of its inputs matter
            return self.roofline.seconds(call)

    def time(self, function: Any, sets: list[tuple[Any, Any]]) -> float:
        for args, kwargs in sets:
            function(*args, **kwargs)
        times: list[float] = []
        while len(times) < LEAST_RUNS or (sum(times) < SECONDS and len(times) < 50):
            args, kwargs = sets[len(times) % len(sets)]
            self.synchronize()
            begun = time.perf_counter()
            function(*args, **kwargs)
            self.synchronize()
            times.append(time.perf_counter() - begun)
        return statistics.median(times)

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def arguments(self, call: Call) -> tuple[Any, Any]:
        """Real tensors for a call. Indices are small enough for every axis that they could refer to."""
        sizes = [n for a in call.arguments if isinstance(a, Form) and a.dtype.is_floating_point for n in a.shape]
        values = [self.argument(a, min(sizes, default=1)) for a in call.arguments]
        args, kwargs = tree_unflatten(values, call.layout)
        return args, kwargs

    def argument(self, value: Any, bound: int) -> Any:
        if isinstance(value, torch.device):
            return self.device
        if not isinstance(value, Form):
            return value
        n = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride))  # 0 strides repeat elements
        flat = self.fill(torch.empty(max(n, 0), dtype=value.dtype), max(1, bound))
        return flat.to(self.device).as_strided(value.shape, value.stride)

    def fill(self, tensor: Tensor, bound: int) -> Tensor:
        if tensor.dtype == torch.bool:
            return tensor.fill_(True)
        if tensor.is_floating_point():
            return tensor.uniform_(0.1, 1.0, generator=self.draw)
        return tensor.random_(0, bound, generator=self.draw)

    def save(self) -> None:
        """Keep the measurements. A folder that cannot be written costs the next plan some seconds, and nothing else."""
        if self.path is not None:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                write_json(self.path, self.times)
            except OSError:
                return


def read_times(path: Path | None) -> dict[str, float]:
    if path is None or not path.is_file():
        return {}
    try:
        times = json.loads(path.read_text(encoding="utf-8"))
        return {str(key): float(value) for key, value in times.items()}
    except (ValueError, AttributeError, TypeError, OSError):
        return {}  # measured again

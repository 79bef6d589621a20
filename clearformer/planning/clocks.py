"""The time of a rehearsed step: the sum over its operations. And the memory that each of them takes for itself.

    Roofline     max(flops / rate, bytes / bandwidth) + launch        of a device that is not here
    Stopwatch    each distinct operation is run on this machine, once for all later plans

Both add the time that the host needs between operations. A recorded step (a CUDA graph) needs a third of it.
"""

import json
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils._pytree import tree_iter, tree_unflatten

from clearformer.checkpoint import write_json
from clearformer.planning.devices import Device
from clearformer.planning.ledger import RNN_LAYER, Call, Form
from clearformer.planning.rehearsal import Rehearsed
from clearformer.planning.scratch import SELDOM, scratch_of

MOST = 2**31  # bytes of an operation that is measured; larger ones are computed
LEAST_RUNS, SECONDS = 3, 0.02  # per operation
ROTATED = 2**25  # bytes of the inputs that are used in turn, so that they do not stay in the caches


class Cost(NamedTuple):
    """Of one operation. `scratch` are the bytes that its kernel takes for itself (scratch.py)."""

    seconds: float
    scratch: int


class Clock(Protocol):
    def step(self, step: Rehearsed) -> float: ...
    def scratch(self, call: Call) -> int: ...


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

    def scratch(self, call: Call) -> int:
        return 0  # unknown


class Stopwatch:
    """The cost of each operation as measured here. `path` keeps the measurements for later plans.

    `overhead` is the time per operation, views included, that Python and autograd need around it.
    """

    def __init__(self, roofline: Roofline, path: Path | None = None, overhead: float = 0.0) -> None:
        self.roofline, self.path, self.overhead = roofline, path, overhead
        self.device = torch.device(roofline.device.name)
        self.costs: dict[str, Cost] = read_costs(path)
        self.draw = torch.Generator().manual_seed(0)

    def step(self, step: Rehearsed) -> float:
        host = self.overhead * (step.n_views + sum(n for _, n in step.calls))
        return host + sum(n * self.cost(call).seconds for call, n in step.calls)

    def scratch(self, call: Call) -> int:
        """The memory of a kernel. Small operations are not measured for it."""
        return self.cost(call).scratch if call.n_bytes >= SELDOM and self.device.type == "cpu" else 0

    def cost(self, call: Call) -> Cost:
        if (key := call.key) not in self.costs:
            seconds, scratch = self.measured(call)
            self.costs[key] = Cost(float(f"{seconds:.4g}"), scratch)
        return self.costs[key]

    def measured(self, call: Call) -> Cost:
        if call.n_bytes > MOST:
            return Cost(self.roofline.seconds(call), 0)
        try:
            sets = [self.arguments(call) for _ in range(max(1, min(4, ROTATED // max(1, call.n_bytes))))]
            with torch.no_grad():
                return Cost(self.time(call.function, sets), self.taken(call, *sets[0]))
        except (RuntimeError, IndexError, NotImplementedError):  # the values of its inputs matter
            return Cost(self.roofline.seconds(call), 0)

    def taken(self, call: Call, args: Any, kwargs: Any) -> int:
        if call.n_bytes < SELDOM or self.device.type != "cpu":
            return 0
        known = {t.untyped_storage().data_ptr() for t in tree_iter((args, kwargs)) if isinstance(t, Tensor)}
        return scratch_of(lambda: call.function(*args, **kwargs), known)

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
        return FILLED.get(call.function, tuple)(args), kwargs

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
                write_json(self.path, self.costs)
            except OSError:
                return


def with_workspace(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of a recurrent layer's backward pass, with the workspace of a real forward pass.

    oneDNN finds its own data structures there, and crashes on anything else.
    """
    x, *weights = args[:5]
    state, memory = args[5:7]
    reverse, mode, d_hidden, n_layers, has_biases, is_training, is_bidirectional, sizes, is_batch_first = args[13:22]
    flags = (reverse, sizes, mode, d_hidden, n_layers, has_biases, is_bidirectional, is_batch_first, is_training)
    return *args[:-1], RNN_LAYER(x, *weights, state, memory, *flags)[-1]


FILLED = {torch.ops.aten.mkldnn_rnn_layer_backward.default: with_workspace}
"""Operations that take what another one has written, which random numbers cannot replace."""


def read_costs(path: Path | None) -> dict[str, Cost]:
    if path is None or not path.is_file():
        return {}
    try:
        costs = json.loads(path.read_text(encoding="utf-8"))
        return {str(key): Cost(float(seconds), int(scratch)) for key, (seconds, scratch) in costs.items()}
    except (ValueError, AttributeError, TypeError, OSError):
        return {}  # measured again

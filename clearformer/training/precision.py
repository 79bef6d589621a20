"""Device, floating-point precision and determinism."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

import torch

from clearformer.errors import MachineError

Precision = Literal["auto", "float32", "bfloat16", "float64"]


def pick_device(name: str = "auto") -> torch.device:
    """The device of this name; "auto" is CUDA if available, then MPS, then the CPU.

    Every rank has a CUDA device of its own, as long as there are enough; further ranks share them in turn.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % max(1, torch.cuda.device_count()))
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise MachineError(
            f"device `{name}` cannot be used: {str(error).splitlines()[0]}", "use --device cpu"
        ) from None
    return device


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Matrix products in bfloat16, by default on CUDA only; weights and sums stay in float32."""
    if precision == "bfloat16" or (precision == "auto" and device.type == "cuda"):
        return torch.autocast(device.type, torch.bfloat16)
    return nullcontext()


@contextmanager
def built_in(precision: Precision) -> Iterator[None]:
    """The dtype of weights and tables built inside the context: float64 for that precision, float32 otherwise.

    Converting them later would not do: a table of sines computed in float32 keeps its rounding errors.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if precision == "float64" else torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def make_deterministic() -> None:
    """Use deterministic kernels; an operation without one raises an error.

    CPU kernels are always deterministic for a fixed number of threads.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS only has a fixed summation order with this
    torch.use_deterministic_algorithms(True)


def reseed(seed: int, device: torch.device) -> None:
    """torch.manual_seed for this device and the CPU only.

    torch.manual_seed also queues seeds for devices that are not initialised: each call takes a millisecond to record
    the call stack, which is never freed.
    """
    torch.default_generator.manual_seed(seed)
    if device.type in ("cuda", "mps"):
        getattr(torch, device.type).manual_seed(seed)

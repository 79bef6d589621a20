"""Which device computes, in which numbers, and how repeatably."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

import torch

from clearformer.errors import MachineError

Precision = Literal["auto", "float32", "bfloat16", "float64"]


def pick_device(name: str = "auto") -> torch.device:
    """CUDA if there is one, else Apple's MPS, else the CPU. Of several CUDA devices, the one of this rank."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise MachineError(f"device `{name}` is not usable: {str(error).splitlines()[0]}", "try cpu") from None
    return device


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """bfloat16 products on CUDA unless told otherwise; weights and sums stay in float32."""
    if precision == "bfloat16" or (precision == "auto" and device.type == "cuda"):
        return torch.autocast(device.type, torch.bfloat16)
    return nullcontext()


@contextmanager
def built_in(precision: Precision) -> Iterator[None]:
    """Weights and tables made inside are float64 if that is asked for, else float32.

    Made, not converted: a table of sines that was float32 once would keep its rounding.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if precision == "float64" else torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def make_deterministic() -> None:
    """Kernels that give the same bits each time; an operation that has none raises, rather than differ unseen.

    On the CPU they are that by themselves, for one number of threads.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS sums in one order only with its own workspace
    torch.use_deterministic_algorithms(True)

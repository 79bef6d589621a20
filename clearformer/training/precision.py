"""Which device computes, in which numbers, and how repeatably."""

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch

from clearformer.errors import MachineError

Precision = Literal["auto", "float32", "bfloat16", "float64"]


def pick_device(name: str = "auto") -> torch.device:
    """CUDA if there is one, else Apple's MPS, else the CPU."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise MachineError(f"device `{name}` is not usable: {str(error).splitlines()[0]}", "try cpu") from None
    return device


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """bfloat16 products on CUDA unless told otherwise; weights and sums stay in float32."""
    if precision == "bfloat16" or (precision == "auto" and device.type == "cuda"):
        return torch.autocast(device.type, torch.bfloat16)
    return nullcontext()


def make_deterministic() -> None:
    """Kernels that give the same bits each time, where torch has them; on the CPU they are that by themselves."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)

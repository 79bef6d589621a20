"""The memory that a kernel takes for itself while it runs, and gives back before it returns.

    scratch = peak − before − results            resident bytes of this process, on Linux

A rehearsal sees the tensors between operations, but not what is inside one: oneDNN converts the inputs of a convolution
to blocks, its LSTM keeps the gradients of all steps. Before the measurement, freed memory is returned to the system, so
that whatever the kernel touches raises the peak.
"""

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_iter

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
SELDOM = 1 << 20  # bytes: what lies below is noise


def scratch_of(compute: Callable[[], Any], known: set[int]) -> int:
    """Return the bytes that `compute` takes for itself. It has run before; `known` are the storages of its inputs."""
    if sys.platform != "linux" or not hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        return 0
    try:
        libc.malloc_trim(0)
        before = resident("VmRSS")
        RESET.write_text("5")  # VmHWM starts again at the resident memory
        results = compute()
        n_bytes = resident("VmHWM") - before
    except OSError:  # a system without these files
        return 0
    storages = {
        t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tree_iter(results) if is_new(t, known)
    }
    scratch = n_bytes - sum(storages.values())
    return scratch if scratch >= SELDOM else 0


def is_new(value: Any, known: set[int]) -> bool:
    return isinstance(value, Tensor) and value.untyped_storage().data_ptr() not in known


def resident(key: str) -> int:
    """Return the resident memory of this process in bytes, now (VmRSS) or at its peak (VmHWM)."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) * 1024

"""Settings for the memory of this process, and its peak usage."""

import ctypes
import gc
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path


def keep_freed_memory() -> int:
    """Make glibc keep freed memory for the next step instead of returning it to the system.

    Returns the size of blocks, in bytes, from which on they are mapped separately and returned when they are freed.

    A decoding step allocates and frees a tensor of the size of the vocabulary. Beam search (beam 4, 32 sentences,
    Transformer-base, two cores) spent 0.12 s of 2.2 s on 54,000 page faults, and none with this setting. The setting
    applies to the whole process: training, its plan and the command line use it, `load` does not. It only has an
    effect on Linux.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        # M_MMAP_THRESHOLD: blocks up to 1 GiB come from the heap, or up to 32 MiB where glibc allows no more.
        for threshold in (1 << 30, 1 << 25) if hasattr(libc, "mallopt") else ():
            if libc.mallopt(-3, threshold):
                libc.mallopt(-1, (1 << 31) - 1)  # M_TRIM_THRESHOLD: the free top of the heap is kept
                return threshold
    return 1 << 17  # the default of glibc


def return_freed_memory() -> None:
    """Make glibc return freed memory to the system, so that a measurement sees what is in use."""
    gc.collect()
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


def collect_rarely() -> None:
    """Make Python look for reference cycles after 20,000 new objects instead of 700.

    Importing torch creates a few hundred thousand objects that live until the end, and Python looks through all of them
    again and again. A training step leaves no cycles. The setting applies to the whole process: the command line uses
    it, `import clearformer` does not.
    """
    gc.set_threshold(20_000)


def end_quickly() -> None:
    """Leave the objects that still exist to the system, instead of looking for cycles among them when Python ends.

    Exit functions run, and objects outside cycles are deleted, as usual. A process that has only imported torch spends
    0.3 s of 2.3 s of processor time on these cycles.
    """
    gc.freeze()


HUGE = 2**21  # bytes per huge page


def on_huge_pages(address: int, n_bytes: int) -> None:
    """Move a block of memory to pages of 2 MiB instead of 4 KiB, so that reading it needs fewer address translations.

    Reading weights once per token becomes 5 % faster. Systems without support for it ignore the call.
    """
    if sys.platform == "linux" and n_bytes >= HUGE:
        libc = ctypes.CDLL(None)
        first, last = address // HUGE * HUGE, -(-(address + n_bytes) // HUGE) * HUGE
        libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), 25)  # MADV_COLLAPSE, since Linux 6.1


def machine_bytes() -> int:
    """Return the memory that this process may use: of the machine, or of its container. 8 GiB if nobody says."""
    try:
        n_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return 2**33
    limit = Path("/sys/fs/cgroup/memory.max")
    with suppress(OSError, ValueError):  # no container, or one without a limit: "max"
        return min(n_bytes, int(limit.read_text()))
    return n_bytes


def peak_mb() -> float:
    """Return the peak resident memory of the process, in MB of 10⁶ bytes. Linux reports KiB, macOS bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


def resident_mb() -> float:
    """Return the memory that the process occupies now, in MB of 10⁶ bytes; where the system does not say, its peak."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6
    except (OSError, ValueError, IndexError):
        return peak_mb()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory was lacking. For the CPU, torch raises a RuntimeError that only says so."""
    is_named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return is_named or (isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in LACKING))


LACKING = (
    "can't allocate memory",  # DefaultCPUAllocator on Linux and macOS
    "not enough memory",  # on Windows
    "std::bad_alloc",
    "could not create a memory",  # oneDNN
    "out of memory",  # MPS, and CUDA libraries that allocate by themselves
)

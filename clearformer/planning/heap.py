"""The memory that an allocator takes from the system for a sequence of allocations, holes included.

    Glibc     the C library of this process itself: it is asked for every block while a training is rehearsed
    Heap      a model of it: the smallest hole that fits, neighbouring holes are merged, the top grows
    Exact     the sum of what is allocated, which no allocator can beat

Small objects, such as the nodes of autograd's graph, settle between large blocks and keep holes apart until they are
gone. A fifth of the memory of a training can be such holes. A rehearsal creates most of these small objects, so that
glibc leaves the same kind of holes; the model knows nothing of them.

Blocks from a threshold on are mapped separately and returned when they are freed; others leave holes. memory.py sets
the threshold, to 1 GiB or to what glibc allows.
"""

import ctypes
import sys
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Protocol

from clearformer.memory import return_freed_memory
from clearformer.planning.ledger import Call, Record

ALIGNMENT = 64  # bytes
PAGE = 4096
GRAIN = 4 * PAGE  # in which covered memory is counted
SCRATCH = range(-4, 0)  # the blocks of a kernel, whose number is not known; recorded ones count from 0
SLACK = ALIGNMENT + 32  # glibc looks for this much more than an aligned block needs: a hole of its size is too small


class Allocator(Protocol):
    peak: int

    def allocate(self, block: int, n_bytes: int) -> None: ...
    def free(self, block: int) -> None: ...


class Exact:
    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.now = self.peak = 0

    def allocate(self, block: int, n_bytes: int) -> None:
        self.sizes[block] = n_bytes
        self.now += n_bytes
        self.peak = max(self.peak, self.now)

    def free(self, block: int) -> None:
        self.now -= self.sizes.pop(block)


class Glibc:
    """The allocator of this process. Blocks are never written, so that they take address space, but hardly memory.

    A training writes to its blocks. Freed memory stays with the process, until it is mapped separately: `peak` is what
    all blocks together have covered so far. Use it in a `with` block, which frees all blocks at the end.
    """

    def __init__(self, threshold: int) -> None:
        self.threshold, self.libc = threshold, library()
        self.blocks, self.covered = dict[int, tuple[int, int]](), set[int]()
        self.mapped = self.peak = 0
        self.result = ctypes.c_void_p()

    def __enter__(self) -> "Glibc":
        return_freed_memory()
        return self

    def __exit__(self, *raised: object) -> None:
        for block in list(self.blocks):
            self.free(block)
        return_freed_memory()

    def allocate(self, block: int, n_bytes: int) -> None:
        if self.libc.posix_memalign(ctypes.byref(self.result), ALIGNMENT, n_bytes):
            raise MemoryError("no address space")
        start = self.result.value
        assert start is not None
        self.blocks[block] = start, n_bytes
        if n_bytes >= self.threshold:
            self.mapped += n_bytes
        else:
            self.covered.update(range(start // GRAIN, (start + n_bytes - 1) // GRAIN + 1))
        self.peak = max(self.peak, GRAIN * len(self.covered) + self.mapped)

    def free(self, block: int) -> None:
        address, n_bytes = self.blocks.pop(block, (0, 0))  # a tensor may outlive the `with` block
        if address:
            self.libc.free(address)
            self.mapped -= n_bytes * (n_bytes >= self.threshold)

    @staticmethod
    def is_here() -> bool:
        return sys.platform == "linux" and hasattr(ctypes.CDLL(None), "mallopt")


@cache
def library() -> Any:
    libc = ctypes.CDLL(None)
    libc.posix_memalign.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    return libc


class Heap:
    """Best fit with merging. `top`, the end of the heap, never shrinks. Blocks from `threshold` on are mapped."""

    def __init__(self, threshold: int) -> None:
        self.threshold = threshold
        self.top = self.mapped = self.peak = 0
        self.used: dict[int, tuple[int, int]] = {}  # block -> (start, size); start −1: mapped
        self.by_size: list[tuple[int, int]] = []  # holes as (size, start), sorted
        self.by_start: dict[int, int] = {}
        self.by_end: dict[int, int] = {}

    def allocate(self, block: int, n_bytes: int) -> None:
        if n_bytes >= self.threshold:
            size = -(-n_bytes // PAGE) * PAGE
            self.used[block] = (-1, size)
            self.mapped += size
        else:
            size = -(-(n_bytes + 16) // ALIGNMENT) * ALIGNMENT
            self.used[block] = (self.take(size), size)
        self.peak = max(self.peak, self.top + self.mapped)

    def take(self, size: int) -> int:
        """Return the start of a block, in the smallest hole that fits or at the top."""
        i = bisect_left(self.by_size, (size + SLACK, -1))
        if i == len(self.by_size):
            start = self.top
            if start in self.by_end:  # the hole below the top grows with it
                start -= self.remove(self.by_end[start])
            self.top = start + size
            return start
        start = self.by_size[i][1]
        rest = self.remove(start) - size
        if rest:
            self.add(start + size, rest)
        return start

    def free(self, block: int) -> None:
        start, size = self.used.pop(block)
        if start < 0:
            self.mapped -= size
            return
        if start in self.by_end:
            below = self.by_end[start]
            size += self.remove(below)
            start = below
        if start + size in self.by_start:
            size += self.remove(start + size)
        self.add(start, size)

    def add(self, start: int, size: int) -> None:
        insort(self.by_size, (size, start))
        self.by_start[start] = size
        self.by_end[start + size] = start

    def remove(self, start: int) -> int:
        size = self.by_start.pop(start)
        del self.by_end[start + size]
        del self.by_size[bisect_left(self.by_size, (size, start))]
        return size


def tell(allocator: Allocator, record: Record, scratch: Callable[[Call], int] = lambda call: 0) -> None:
    """Do what a record says. `scratch` is what a kernel takes for itself, beside its results, and gives back."""
    if isinstance(record, Call):
        if n_bytes := scratch(record):
            for block in SCRATCH:
                allocator.allocate(block, n_bytes // len(SCRATCH))
            for block in SCRATCH:
                allocator.free(block)
    elif record.n_bytes < 0:
        allocator.free(record.block)
    elif record.n_bytes > 0:
        allocator.allocate(*record)


def peak_of(records: Iterable[Record], allocator: Allocator, scratch: Callable[[Call], int] = lambda call: 0) -> int:
    """Replay what was recorded, and return the most memory that the allocator held."""
    for record in records:
        tell(allocator, record, scratch)
    return allocator.peak

"""The memory that an allocator takes from the system for a sequence of allocations, holes included.

    Heap      glibc on Linux: the smallest hole that fits, neighbouring holes are merged, the top grows
    Exact     the sum of what is allocated, which no allocator can beat

Blocks from a threshold on are mapped separately and returned when they are freed; others leave holes. memory.py sets
the threshold, to 1 GiB or to what glibc allows.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Protocol

from clearformer.planning.ledger import Event

ALIGNMENT = 64  # bytes
PAGE = 4096
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


def peak_of(events: Iterable[Event], allocator: Allocator) -> int:
    """Replay allocations, and return the most memory that the allocator held."""
    for block, n_bytes in events:
        if n_bytes < 0:
            allocator.free(block)
        elif n_bytes > 0:
            allocator.allocate(block, n_bytes)
    return allocator.peak

"""Allocators: holes are reused and merged, and the top of the heap never shrinks."""

import pytest

from clearformer.memory import keep_freed_memory, resident_mb
from clearformer.planning.heap import Exact, Glibc, Heap, peak_of
from clearformer.planning.ledger import Call, Event

MB = 2**20
MAPPED = 2**25


def test_the_sum_of_what_lives_is_the_least() -> None:
    events = [Event(0, 3 * MB), Event(1, 2 * MB), Event(0, -3 * MB), Event(2, MB)]
    assert peak_of(events, Exact()) == 5 * MB


def test_a_hole_is_reused_if_it_is_large_enough() -> None:
    apart = [Event(0, MB), Event(1, 1000), Event(0, -MB)]
    small, large = [*apart, Event(2, MB // 2)], [*apart, Event(2, 2 * MB)]
    assert peak_of(small, Heap(MAPPED)) < 1.01 * MB
    assert 3 * MB < peak_of(large, Heap(MAPPED)) < 3.01 * MB


def test_neighbouring_holes_are_merged() -> None:
    events = [Event(0, MB), Event(1, MB), Event(2, 1000), Event(0, -MB), Event(1, -MB), Event(3, 2 * MB - 1000)]
    assert peak_of(events, Heap(MAPPED)) < 2.01 * MB


def test_large_blocks_leave_no_hole() -> None:
    events = [Event(0, MAPPED), Event(1, 1000), Event(0, -MAPPED), Event(2, 2 * MAPPED)]
    assert 2 * MAPPED <= peak_of(events, Heap(MAPPED)) < 2.01 * MAPPED


def test_nothing_is_allocated_for_nothing() -> None:
    assert peak_of([Event(0, 0), Event(0, 0)], Heap(MAPPED)) == 0


def test_a_kernel_takes_memory_beside_what_is_there() -> None:
    call = Call("any", (), None, 0, 0)
    records = [Event(0, 3 * MB), call, Event(0, -3 * MB), Event(1, MB), call]
    assert peak_of(records, Exact(), lambda _: 2 * MB) == 5 * MB


@pytest.mark.skipif(not Glibc.is_here(), reason="needs glibc")
def test_glibc_is_asked_for_address_space_and_not_for_memory() -> None:
    threshold = keep_freed_memory()
    before = resident_mb()
    with Glibc(threshold) as glibc:
        for block in range(64):
            glibc.allocate(block, 16 * MB)
            if block % 2:
                glibc.free(block)
        assert resident_mb() - before < 100
        assert 32 * 16 * MB <= glibc.peak < 64 * 16 * MB  # a block that is freed leaves room for the next
        glibc.allocate(64, threshold)
        glibc.free(64)
        glibc.allocate(65, threshold)  # a mapped block leaves nothing
        assert threshold < glibc.peak < threshold + 64 * 16 * MB
    assert not glibc.blocks

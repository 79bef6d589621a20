"""Allocators: holes are reused and merged, and the top of the heap never shrinks."""

from clearformer.planning.heap import Exact, Heap, peak_of
from clearformer.planning.ledger import Event

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

"""Ranks wait for each other, and notice if one of them, or the process that holds their store, has died or stopped."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch.distributed as dist

from clearformer.errors import MachineError
from clearformer.training.meeting import Meeting


class StoppedStore:
    """A store whose process has stopped: it accepts questions, and never answers."""

    def __init__(self) -> None:
        self.is_over = threading.Event()

    def answer(self, *question: object) -> int:
        self.is_over.wait(20)
        return 0

    set = check = add = answer


class EndedStore:
    """A store whose process has ended: connections are closed."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def answer(self, key: str, *question: object) -> int:
        if key.startswith("beat"):
            raise RuntimeError
        raise self.error

    set = check = add = answer


def test_ranks_wait_for_one_that_works_alone_longer_than_the_timeout():
    store = dist.HashStore()
    meetings = [Meeting(store, rank, 2, seconds=0.5) for rank in range(2)]

    def arrive(meeting: Meeting) -> None:
        time.sleep(1.5 * meeting.rank)
        meeting.barrier()
        meeting.barrier()

    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(arrive, meetings)] == [None, None]
    for meeting in meetings:
        meeting.end()


def test_a_rank_that_never_comes_is_noticed():
    meeting = Meeting(dist.HashStore(), 0, 2, seconds=0.3)
    begun = time.monotonic()
    with pytest.raises(MachineError, match=r"has not answered for 0\.3 s"):
        meeting.barrier()
    assert time.monotonic() - begun < 10
    meeting.end()


def test_a_store_that_never_answers_is_noticed():
    """The first rank holds the store where no torchrun does; if it is stopped, the others waited for ever."""
    store = StoppedStore()
    meeting = Meeting(store, 1, 2, seconds=0.3)
    begun = time.monotonic()
    with pytest.raises(MachineError, match=r"has not answered for 0\.3 s"):
        meeting.barrier()
    assert time.monotonic() - begun < 10
    store.is_over.set()
    meeting.end()


@pytest.mark.parametrize("kind", [RuntimeError, OSError, ValueError])
def test_a_store_that_has_ended_is_an_error(kind: type[Exception]) -> None:
    """Whatever the error is: the barrier must not end as if all ranks had met."""
    meeting = Meeting(EndedStore(kind("Connection reset by peer")), 1, 2, seconds=5)
    with pytest.raises(kind, match="Connection reset"):
        meeting.barrier()
    meeting.end()

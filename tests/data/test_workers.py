"""Workers return what the function returns, in order, and leave no process behind."""

import os
import signal
import threading
import time

import pytest

from clearformer.data.pairs import Filter, Tally
from clearformer.data.workers import Workers
from clearformer.errors import DataError, MachineError

N = 2


def test_results_come_in_the_order_of_the_blocks() -> None:
    with Workers(eval, N) as workers:
        assert list(workers.map(f"__import__('time').sleep({i % 3} / 50) or {i}" for i in range(17))) == list(range(17))


def test_workers_look_for_cycles_rarely() -> None:
    """Their blocks are lists of thousands of rows, through which the collector went again and again."""
    with Workers(eval, N) as workers:
        assert set(workers.map(["__import__('gc').get_threshold()[0]"] * 3)) == {20_000}


def test_an_error_comes_after_the_results_before_it() -> None:
    with Workers(eval, N) as workers:
        results = workers.map(["1", "2", "1 / 0", "4"])
        assert [next(results), next(results)] == [1, 2]
        with pytest.raises(ZeroDivisionError) as caught:
            next(results)
    assert 'File "<string>", line 1' in "".join(caught.value.__notes__)  # the traceback of the worker


def test_an_error_of_the_blocks_comes_after_their_results() -> None:
    def blocks():
        yield "1"
        yield "2"
        raise DataError("the file is damaged", "copy it again")

    with Workers(eval, N) as workers:
        results = workers.map(blocks())
        assert [next(results), next(results)] == [1, 2]
        with pytest.raises(DataError, match="damaged"):
            next(results)


def test_an_error_of_the_user_keeps_its_hint() -> None:
    with Workers(Filter().require_any, N) as workers, pytest.raises(DataError) as caught:
        list(workers.map([Tally(empty=3)]))
    assert caught.value.message.startswith("no pairs are left after filtering: kept 0 of 3 pairs (3 empty")
    assert caught.value.hint == "check the columns, or relax [data.filter]"


def test_ctrl_c_ends_the_workers() -> None:
    with Workers(time.sleep, N) as workers:
        threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt):
            list(workers.map([600.0] * 5))
    assert [process.returncode for process in workers.processes] == [-signal.SIGKILL] * N


def test_ctrl_c_in_a_terminal_does_not_reach_the_workers() -> None:
    with Workers(eval, N) as workers:
        groups = set(workers.map(["__import__('os').getpgid(0)"] * 5))
    assert os.getpgid(0) not in groups


def test_a_worker_that_is_killed_is_an_error() -> None:
    with Workers(eval, N) as workers, pytest.raises(MachineError, match="has stopped"):
        list(workers.map(["1", "__import__('os').kill(__import__('os').getpid(), 9)", "2"]))


def test_workers_do_not_import_torch() -> None:
    """A worker that imports torch would need 200 MB and two seconds."""
    loaded = "__import__('clearformer.data.pair_blocks') and 'torch' in __import__('sys').modules"
    with Workers(eval, 1) as workers:
        assert list(workers.map([loaded])) == [False]

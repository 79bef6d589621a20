"""Apply a function to blocks of data in several processes. The results come in the order of the blocks.

    with Workers(function, n=2) as workers:
        for result in workers.map(blocks):
            ...

A worker is a new interpreter that imports only what the function needs. A forked process would inherit torch's threads
in an undefined state, and a process spawned by `multiprocessing` would run the script of the user again. A worker ends
when its connection closes, even if this process is killed.
"""

import os
import subprocess
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from math import ceil
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Generic, Self, TypeVar

from clearformer.errors import ClearformerError, MachineError
from clearformer.memory import collect_rarely

Block = TypeVar("Block")
Result = TypeVar("Result")


class Workers(Generic[Block, Result]):
    """Processes that apply a picklable function. A thread per worker sends a block and waits for its result."""

    def __init__(self, function: Callable[[Block], Result], n: int) -> None:
        self.n = n
        self.idle: SimpleQueue[Connection] = SimpleQueue()
        self.connections: list[Connection] = []
        self.processes: list[subprocess.Popen] = []
        for _ in range(n):
            here, there = Pipe()
            self.connections.append(here)
            self.processes.append(start(there))
            there.close()
            self.idle.put(here)
        self.threads = ThreadPoolExecutor(n)
        try:
            for connection in self.connections:
                connection.send(function)
        except OSError:
            self.__exit__()
            raise stopped() from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the workers, also in the middle of a block."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        for process in self.processes:
            process.kill()
            process.wait()
        self.threads.shutdown()
        for connection in self.connections:
            connection.close()

    def map(self, blocks: Iterable[Block]) -> Iterator[Result]:
        """Yield function(block) for each block, in order. At most two blocks per worker are read ahead.

        An error of a block is raised in its place: after the results of the blocks before it.
        """
        pending: deque[Future[Result]] = deque()
        for future in self._submit(blocks):
            pending.append(future)
            if len(pending) > 2 * self.n:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    def _submit(self, blocks: Iterable[Block]) -> Iterator[Future[Result]]:
        try:
            for block in blocks:
                yield self.threads.submit(self._apply, block)
        except ClearformerError as error:  # from reading the next block
            future: Future[Result] = Future()
            future.set_exception(error)
            yield future

    def _apply(self, block: Block) -> Result:
        connection = self.idle.get()
        try:
            connection.send(block)
            answer: tuple[Result, Exception | None] = connection.recv()
        except (EOFError, OSError):
            raise stopped() from None
        finally:
            self.idle.put(connection)
        result, error = answer
        if error is not None:
            raise error
        return result


def stopped() -> MachineError:
    return MachineError(
        "a process that prepares the data has stopped",
        "if memory ran out, close other programs; then start the run again",
    )


def start(connection: Connection, module: str = __name__, **variables: str) -> subprocess.Popen:
    """Start a process that runs `serve` of a module, in a session of its own: Ctrl-C interrupts only this process.

    `variables` are added to its environment.
    """
    handle = connection.fileno()
    code = f"from {module} import serve; serve({handle})"
    path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    environment = {**os.environ, "PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false", **variables}
    return subprocess.Popen(
        [sys.executable, "-P", "-c", code], env=environment, pass_fds=(handle,), start_new_session=True
    )


def serve(handle: int) -> None:
    """Receive a function, then blocks; for each send (result, None) or (None, error), until the connection closes."""
    connection = Connection(handle)
    collect_rarely()  # a block is lists of thousands of rows: looking for cycles took two fifths of the time
    try:
        function = connection.recv()
        while True:
            block = connection.recv()
            try:
                connection.send((function(block), None))
            except ClearformerError as error:
                connection.send((None, error))
            except Exception as error:  # a bug, which keeps its traceback
                error.add_note(traceback.format_exc())
                connection.send((None, error))
    except (EOFError, OSError):
        return


def usable_threads() -> int:
    """Count the hardware threads that this process may use, given its affinity and the cgroup quota of a container."""
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return min(threads, ceil(int(quota) / int(period)))
    except (OSError, ValueError):  # no control group, or the quota is the word "max"
        return threads

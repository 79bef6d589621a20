"""The client's end of submitted work: events as they happen, the answers at the end, from threads and from asyncio.

    for event in ticket                async for event in ticket              in the order of the engine; one reader
    ticket.result(timeout)             await ticket                           the results of all texts, in their order
    ticket.cancel()                                                           its rows are free at the next step

Nobody polls: a thread waits for a condition, a coroutine for a future that the engine completes.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from contextlib import suppress
from threading import Condition
from typing import Any

from clearformer.serve.work import Answer, Cancelled, Event, Expired, Unread
from clearformer.wording import count

MOST_EVENTS = 50_000  # that wait to be read, about 20 MB: minutes of most streams, seconds of the fastest

Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class Ticket:
    """Work in progress: `n` texts. `deadline` is a time of time.monotonic(), or None.

    The times, of the same clock, and the numbers of tokens are for statistics. `started` is when the first text left
    the queue. Tokens generated include EOS and the tokens of all samples, or of the best hypotheses returned. A Call
    counts as one sequence.
    """

    def __init__(self, n: int, deadline: float | None = None, notify: Callable[[], None] = lambda: None) -> None:
        self.n, self.deadline, self.notify = n, deadline, notify
        self.submitted = time.monotonic()
        self.started: float | None = None
        self.first_token: float | None = None
        self.finished: float | None = None if n else self.submitted
        self.n_prompt = self.n_generated = 0
        self.ended = Counter[str]()  # sequences by the reason of their end: stop or length
        self.error: BaseException | None = None
        self.answers: dict[int, list[Any]] = {}
        self._events = deque[Event]()
        self._changed = Condition()
        self._waiters: list[Waiter] = []

    @property
    def is_done(self) -> bool:
        return self.finished is not None

    @property
    def reasons(self) -> Counter[str]:
        """The sequences by the reason of their end, as vLLM names it. A text that is given up counts as one."""
        n_left = self.n - len(self.answers)
        kind = "abort" if isinstance(self.error, Cancelled | Expired | Unread) else "error"
        return self.ended + Counter({kind: n_left if self.error is not None else 0})

    @property
    def results(self) -> list[list[Any]]:
        return [self.answers[index] for index in range(self.n)]

    def cancel(self) -> None:
        """Stop the work; whoever waits for it gets the error Cancelled. Does nothing once it is done."""
        self.fail(Cancelled("the request was cancelled"))
        self.notify()

    # For readers in threads

    def __iter__(self) -> Iterator[Event]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._events or self.is_done)
                events = self._take()
            yield from events
            if not events:
                self._raise()
                return

    def result(self, timeout: float | None = None) -> list[list[Any]]:
        """Wait for the results of all texts. Raises the error of the work, or Expired after `timeout` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.is_done, timeout):
                raise Expired(f"no result after {timeout:g} s")
        self._raise()
        return self.results

    # For readers in asyncio

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            await self._wait(lambda: bool(self._events) or self.is_done)
            with self._changed:
                events = self._take()
            for event in events:
                yield event
            if not events:
                self._raise()
                return

    def __await__(self) -> Generator[Any, None, list[list[Any]]]:
        return self._result().__await__()

    async def _result(self) -> list[list[Any]]:
        await self._wait(lambda: self.is_done)
        self._raise()
        return self.results

    async def _wait(self, is_ready: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            future = loop.create_future()
            with self._changed:
                if is_ready():
                    return
                self._waiters.append((loop, future))
            await future

    # For the engine

    def put(self, event: Event) -> None:
        """Add an event. Readers wake up with `wake`, so that an engine can wake all of a step at once.

        If too many events wait to be read, the work ends with the error Unread.
        """
        with self._changed:
            if self.is_done:
                return
            if len(self._events) >= MOST_EVENTS:
                unread = count(len(self._events), "event")
                self.fail(Unread(f"the stream is not read: {unread} waiting", "read it as it comes"))
                return
            if isinstance(event, Answer):
                self.answers[event.index] = event.results
            elif self.first_token is None:
                self.first_token = time.monotonic()
            self._events.append(event)
            if len(self.answers) == self.n:
                self.finished = time.monotonic()

    def fail(self, error: BaseException) -> None:
        with self._changed:
            if self.is_done:
                return
            self.error, self.finished = error, time.monotonic()
            self._events.clear()
        wake([self])

    def _take(self) -> list[Event]:
        events = list(self._events)
        self._events.clear()
        return events

    def _raise(self) -> None:
        if self.error is not None:
            raise self.error


def wake(tickets: Iterable[Ticket]) -> None:
    """Wake the readers of these tickets: threads each, and the coroutines of an event loop all at once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for ticket in tickets:
        with ticket._changed:
            ticket._changed.notify_all()
            waiters, ticket._waiters = ticket._waiters, []
        for loop, future in waiters:
            by_loop.setdefault(loop, []).append(future)
    for loop, futures in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            loop.call_soon_threadsafe(complete, futures)


def complete(futures: Iterable["asyncio.Future[None]"]) -> None:
    for future in futures:
        if not future.done():  # a coroutine that was cancelled in the meantime
            future.set_result(None)

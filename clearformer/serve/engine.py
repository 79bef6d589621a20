"""The engine of one model: a thread that decodes the work of all clients in one continuous batch.

    engine = Engine(handle)
    ticket = engine.submit(Translate(["Where is the station?"], n=2), timeout=30)      from any thread
    ticket.result()                                                                    or read its events (ticket.py)
    engine.close(timeout=30)                                                           finish, then stop

    submit ─▶ waiting.py ─▶ admission.py ─▶ scheduler.py, texts in progress here       ─▶ reports.py ─▶ tickets
                                            crews.py, texts of the worker processes

This file has the side of the clients, and the thread, which makes one turn after the other (turns.py).

Work is planned in the thread of the client (work.py): settings are checked and texts tokenised there, so that mistakes
are raised by `submit`. An error of one text reaches its ticket only, and the thread goes on.

With an opener, small models on a CPU are decoded by several processes (crew.py). Texts with `stop`, which need every
step here, stay with the thread, and so do all while no process is ready.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from threading import TIMEOUT_MAX, Condition, Lock, Thread

import torch

from clearformer.handles.handle import Handle
from clearformer.memory import is_out_of_memory
from clearformer.serve.admission import Admission
from clearformer.serve.budget import Budget
from clearformer.serve.crew import Crew, workers_for
from clearformer.serve.crews import Crews
from clearformer.serve.opener import Opener
from clearformer.serve.reports import Reports, Totals, lack_of_memory, stopped_early
from clearformer.serve.scheduler import Room, Scheduler
from clearformer.serve.served import Served
from clearformer.serve.shared import Shared, Sharing
from clearformer.serve.texts import Text
from clearformer.serve.ticket import Ticket
from clearformer.serve.turns import Turns
from clearformer.serve.waiting import Waiting
from clearformer.serve.watchdog import Watchdog
from clearformer.serve.work import Busy, Closing, Expired, Work
from clearformer.threads import most_threads
from clearformer.wording import count

END_SECONDS = 5.0  # for the thread to end a turn, when the engine is closed
LOOK_SECONDS = 0.1  # between two looks at the deadlines of texts that others decode


class Engine:
    """`room` is what may be in progress at a time; at most `max_waiting` texts wait for it. `budget` is the memory that
    the engines of this process share.

    `threads` is the number of threads of torch for large steps; small ones take one (threads.py). `opener` lets
    worker processes open the model. There are `n_workers`, by default as many as suit its size; none without an opener.
    """

    def __init__(
        self,
        handle: Handle,
        adapters: Mapping[str, Handle] | None = None,
        room: Room | None = None,
        max_waiting: int = 1024,
        threads: int | None = None,
        opener: Opener | None = None,
        n_workers: int | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.max_waiting, self.n_workers = max_waiting, n_workers
        room = room or Room.of(handle.device)
        self.budget = budget or Budget(room.bytes)
        self.room = replace(room, bytes=min(room.bytes, self.budget.bytes))
        self.reports, self.watchdog = Reports(self.look_again), Watchdog()
        self.waiting, self.scheduler = Waiting(), Scheduler(self.room, self.reports)
        self.crews = Crews(self, self.reports)
        self.admission = Admission(self, self.budget, self.waiting, self.scheduler, self.crews)
        self.changed, self.visitor = Condition(), Lock()
        self.turns = Turns(self.admission, self.reports, self.watchdog, self.changed, threads or most_threads())
        self.n_visitors, self.is_turning, self.is_due = 0, False, False
        self.is_closing = self.is_ending = False
        self.served = self.serve(handle, adapters, opener)
        self.budget.join(self)
        self.thread = Thread(target=self.run, name=f"engine of {handle.name}", daemon=True)
        self.thread.start()

    def serve(
        self,
        handle: Handle,
        adapters: Mapping[str, Handle] | None,
        opener: Opener | None,
    ) -> Served:
        """Return what is served from now on, with worker processes if they suit it."""
        served, n = Served(handle, adapters or {}), self.n_workers
        if n is None:
            n = workers_for(served.n_weights, most_threads()) if handle.device.type == "cpu" else 0
        if n and opener is not None and served.footprint is not None:
            room = replace(self.room, bytes=self.room.bytes // (n + 1))
            served.crew = Crew(opener, n, room, self.crews)
            self.crews.add(served.crew)
        return served

    # For clients, in any thread

    @property
    def handle(self) -> Handle:
        return self.served.handle

    @property
    def n_waiting(self) -> int:
        return len(self.waiting)

    @property
    def n_elsewhere(self) -> int:
        """The number of texts that worker processes decode."""
        return self.crews.n_texts

    @property
    def n_running(self) -> int:
        return self.scheduler.n_texts + self.n_elsewhere

    @property
    def workers(self) -> list[int]:
        """The ids of the processes that decode, without this one."""
        return self.crews.processes

    @property
    def totals(self) -> Totals:
        return self.reports.totals

    @property
    def is_stuck(self) -> bool:
        """Whether there is work, but no progress (watchdog.py), or the thread has died."""
        has_work = bool(self.is_turning or self.n_waiting or self.scheduler.n_texts)
        has_died = not (self.thread.is_alive() or self.is_closing)
        return (has_work and self.watchdog.is_late) or self.crews.is_stuck or has_died

    def submit(self, work: Work, timeout: float | None = None) -> Ticket:
        """Queue work, and return its ticket. `timeout` is the time for all of it, in seconds.

        Raises a ClearformerError if the work is invalid, a text needs more memory than there is (TooLarge), the queue
        is full (Busy) or the engine stops (Closing).
        """
        served = self.served
        handle, adapter = served.handle_for(work.adapter)
        try:
            plans = [plan.with_adapter(adapter) for plan in work.plan(handle)]
        except Exception as error:
            raise (lack_of_memory() if is_out_of_memory(error) else error) from None
        ticket = Ticket(len(plans), None if timeout is None else time.monotonic() + timeout, self.notify)
        texts = [
            (Sharing if isinstance(plan, Shared) else Text)(ticket, work, index, plan, handle.model)
            for index, plan in enumerate(plans)
        ]
        for text in texts:
            if text.sequences is not None:
                ticket.n_prompt += len(text.sequences.source)
                served.measure(text, self.room)
        with self.changed:
            if self.is_closing:
                raise Closing("the server is stopping", "send the request again later")
            if (n := len(self.waiting)) and n + len(texts) > self.max_waiting:
                raise Busy(f"{count(n, 'text')} already waiting", self.seconds_to_wait(n))
            if not (n or self.n_running or self.is_turning):
                self.watchdog.progressed()
            self.waiting.add(texts)
            self.is_due = True
            self.changed.notify_all()
        return ticket

    def seconds_to_wait(self, n: int) -> float:
        """Guess in how many seconds a tenth of n texts will have left the queue."""
        each = self.totals.seconds / max(1, self.totals.texts)
        return min(60.0, max(1.0, 0.1 * n * each))

    def swap(
        self,
        handle: Handle,
        adapters: Mapping[str, Handle] | None = None,
        opener: Opener | None = None,
    ) -> None:
        """Use another handle for work submitted from now on. Earlier work is finished with the old one."""
        old, self.served = self.served, self.serve(handle, adapters, opener)
        if old.crew is not None:
            old.crew.retire()

    @contextmanager
    def paused(self, timeout: float = TIMEOUT_MAX) -> Iterator[Handle]:
        """Give the handle to the calling thread between two steps, for work that changes the model for a while.

        Raises Expired if another visitor, or work that is not done, keeps it for `timeout` seconds. The caller may use
        it for as long before the engine counts as stuck.
        """
        end = time.monotonic() + timeout
        if not self.visitor.acquire(timeout=timeout):
            raise still_busy()
        try:
            with self.changed:
                self.n_visitors += 1
                if not self.changed.wait_for(lambda: not self.is_turning, end - time.monotonic()):
                    raise still_busy()
            with self.watchdog.patient(time.monotonic() + timeout):
                yield self.handle
        finally:
            with self.changed:
                self.n_visitors -= 1
                self.changed.notify_all()
            self.visitor.release()

    def close_if_idle(self) -> bool:
        """Accept no more work and stop, unless there is work or a visitor; returns whether the engine stops."""
        with self.changed:
            if self.n_waiting or self.n_running or self.is_turning or self.n_visitors:
                return False
            self.is_closing = True
            self.changed.notify_all()
        return True

    def close(self, timeout: float = 0.0) -> None:
        """Accept no more work, finish the rest within `timeout` seconds, let what is left then fail, and stop."""
        with self.changed:
            self.is_closing = True
            self.changed.notify_all()
        self.thread.join(timeout)
        with self.changed:
            self.is_ending = self.turns.between.is_ending = True
            self.changed.notify_all()
        self.thread.join(END_SECONDS)
        if self.thread.is_alive():  # busy with a long text, or stuck: whoever waits gets an error
            self.reports.fail_rest([*self.scheduler, *self.turns.begun, *self.waiting], stopped_early())

    def look_again(self) -> None:
        """Look at the queue in the next turn."""
        self.is_due = True

    def notify(self) -> None:
        with self.changed:
            self.is_due = True
            self.changed.notify_all()

    # The thread

    @torch.inference_mode()
    def run(self) -> None:
        while self.await_work():
            before = time.monotonic()
            try:
                self.turns.make(self.served)
            except Exception as error:  # a bug, since errors of texts are caught: all in progress fail, and we go on
                self.reports.fail_rest(self.turns.give_up(), error)
            finally:
                self.turns.end()
                self.totals.steps += 1
                self.totals.seconds += time.monotonic() - before
                with self.changed:
                    self.is_turning = False
                    if self.n_visitors:
                        self.changed.notify_all()
        self.budget.leave(self)
        rest = [*self.scheduler.clear(), *self.waiting.clear(), *self.crews.close()]
        self.reports.fail_rest(rest, stopped_early())

    def await_work(self) -> bool:
        """Wait until there is something to do and no visitor; returns whether the thread goes on.

        That is a text in progress here, or news: what waits for worker processes, or is decoded there, needs no turn.
        """
        with self.changed:
            while True:
                is_idle = not (self.n_waiting or self.n_running)
                if self.is_ending or (self.is_closing and is_idle):
                    return False
                if (self.scheduler.n_texts or (self.is_due and not is_idle)) and not self.n_visitors:
                    self.is_turning, self.is_due = True, False
                    return True
                if not self.changed.wait(None if is_idle else LOOK_SECONDS):
                    self.is_due = True

    # For the crews, in their threads

    def progressed(self) -> None:
        self.watchdog.progressed()

    def freed_room(self) -> None:
        self.admission.account()
        self.notify()
        self.admission.tell()

    def take_back(self, texts: list[Text]) -> None:
        with self.changed:
            self.waiting.add_again(texts)


def still_busy() -> Expired:
    return Expired("the model is at work for others", "ask again later")

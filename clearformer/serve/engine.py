"""The engine of one model: a thread that decodes the work of all clients in one continuous batch.

    engine = Engine(handle)
    ticket = engine.submit(Translate(["Where is the station?"], n=2), timeout=30)      from any thread
    ticket.result()                                                                    or read its events (ticket.py)
    engine.close(timeout=30)                                                           finish, then stop

    submit ──▶ waiting.py: the queue ──▶ scheduler.py: texts in progress ──▶ tickets

Work is planned in the thread of the client (work.py): settings are checked and texts tokenised there, so that mistakes
are raised by `submit`. An error of one text reaches its ticket only, and the thread goes on.

With an opener, small models on a CPU are decoded by several processes (crew.py). Texts with `stop`, which need every
step here, stay with the thread, and so do all while no process is ready.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from threading import Condition, Lock, RLock, Thread
from typing import Any

import torch

from clearformer.errors import ConfigError, suggest
from clearformer.generation.continuous import Footprint, decode_alone
from clearformer.generation.decode import Hypothesis
from clearformer.generation.open_policies import Progress
from clearformer.generation.open_tables import Tables
from clearformer.handles.handle import Handle, count_parameters
from clearformer.layers.row_choice import rows_choose
from clearformer.memory import is_out_of_memory
from clearformer.serve.budget import Budget
from clearformer.serve.crew import Crew, workers_for
from clearformer.serve.opener import Opener
from clearformer.serve.scheduler import Load, Room, Scheduler
from clearformer.serve.ticket import Ticket, wake
from clearformer.serve.waiting import Text, Waiting
from clearformer.serve.work import Answer, Busy, Closing, Expired, NoMemory, TooLarge, Top, Work
from clearformer.serve.worker import LAST, Again, Failed, Finished, Heard
from clearformer.threads import most_threads, use_threads
from clearformer.wording import count

STUCK_SECONDS = 30.0
END_SECONDS = 5.0  # for the thread to end a turn, when the engine is closed
LOOK_SECONDS = 0.1  # between two looks at the deadlines of texts that others decode


@dataclass
class Totals:
    """What an engine has done so far."""

    steps: int = 0
    seconds: float = 0.0  # of steps
    texts: int = 0
    errors: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0


class Served:
    """A model with its adapters by name, as `open_with_adapters` returns them (loading/adapters.py).

    `footprint` is None if the model does not generate, or if its texts cannot join and leave a batch. `tables` is None
    if its steps cannot be recorded. `crew` are the worker processes that decode it, if there are any.
    """

    crew: Crew | None = None

    def __init__(self, handle: Handle, adapters: Mapping[str, Handle]) -> None:
        self.handle, self.adapters = handle, dict(adapters)
        self.n_weights = count_parameters(handle.model)
        with torch.inference_mode():
            self.footprint = Footprint.of(handle.model) if {"translate", "generate"} & {*handle.verbs} else None
            self.tables = None if self.footprint is None or adapters else Tables.of(handle.model)

    def handle_for(self, adapter: str | None) -> tuple[Handle, int]:
        """Return the handle of an adapter, and its number in the model, 0 for none."""
        if adapter is None:
            return self.handle, 0
        if adapter not in self.adapters:
            hint = suggest(adapter, self.adapters) if self.adapters else "omit the adapter"
            raise ConfigError(f"{self.handle.name} has no adapter `{adapter}`", hint)
        return self.adapters[adapter], 1 + list(self.adapters).index(adapter)


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
        self.waiting, self.scheduler, self.totals = Waiting(), Scheduler(self.room, self), Totals()
        self.threads = threads or most_threads()
        self.touched: set[Ticket] = set()  # with new events
        self.changed, self.visitor, self.telling = Condition(), Lock(), RLock()
        self.n_visitors, self.is_turning, self.is_due = 0, False, False
        self.crews: list[Crew] = []  # the last one decodes new texts, earlier ones finish theirs
        self.is_closing = self.is_ending = False
        self.progress = time.monotonic()  # when the last step ended, or work came after a pause
        self.begun: list[Text] = []  # texts that have left the queue in this turn
        self.patient_until = 0.0  # the deadline of the text that is answered alone
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
            served.crew = Crew(opener, n, room, self)
            self.crews = [*(crew for crew in self.crews if crew.thread.is_alive()), served.crew]
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
        return sum(map(len, list(self.crews)))

    @property
    def n_running(self) -> int:
        return self.scheduler.n_texts + self.n_elsewhere

    @property
    def workers(self) -> list[int]:
        """The ids of the processes that decode, without this one."""
        return [process.pid for crew in list(self.crews) for process in crew.processes if process.poll() is None]

    @property
    def is_stuck(self) -> bool:
        """Whether there is work, but no step has ended for 30 seconds, or the thread has died.

        A text that is answered alone has the time that its client allows, if that is longer.
        """
        has_work = bool(self.is_turning or self.n_waiting or self.scheduler.n_texts)
        is_late = has_work and time.monotonic() > max(self.progress + STUCK_SECONDS, self.patient_until)
        is_late = is_late or any(crew.is_stuck for crew in list(self.crews))
        return is_late or not (self.thread.is_alive() or self.is_closing)

    def submit(self, work: Work, timeout: float | None = None) -> Ticket:
        """Queue work, and return its ticket. `timeout` is the time for all of it, in seconds.

        Raises a ClearformerError if the work is invalid, a text needs more memory than there is (TooLarge), the queue
        is full (Busy) or the engine stops (Closing).
        """
        served = self.served
        handle, adapter = served.handle_for(work.adapter)
        plans = [plan.with_adapter(adapter) for plan in work.plan(handle)]
        ticket = Ticket(len(plans), None if timeout is None else time.monotonic() + timeout, self.notify)
        texts = [Text(ticket, work, index, plan, handle.model) for index, plan in enumerate(plans)]
        for text in texts:
            if text.sequences is not None:
                ticket.n_prompt += len(text.sequences.source)
                self.measure(text, served)
        with self.changed:
            if self.is_closing:
                raise Closing("the server is stopping", "send the request again later")
            if (n := len(self.waiting)) and n + len(texts) > self.max_waiting:
                raise Busy(f"{count(n, 'text')} already waiting", self.seconds_to_wait(n))
            if not self.n_running and not n:
                self.progress = time.monotonic()
            self.waiting.add(texts)
            self.is_due = True
            self.changed.notify_all()
        return ticket

    def measure(self, text: Text, served: Served) -> None:
        footprint, tables = served.footprint, served.tables
        if footprint is None:
            text.is_alone = True
            return
        if tables is not None and not text.work.top and tables.can_hold(text.sequences):  # `top` needs all logits
            text.tables = tables
        text.n_bytes = footprint.n_bytes(text.sequences)
        if text.n_bytes > self.room.bytes:
            need, have = text.n_bytes / 1e6, self.room.bytes / 1e6
            raise TooLarge(
                f"a text may need {need:,.0f} MB of caches, but the engine has {have:,.0f} MB",
                "send a shorter text, or ask for fewer tokens or hypotheses",
            )
        if served.crew is not None and served.crew.suits(text):
            text.crew = served.crew

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
    def paused(self) -> Iterator[Handle]:
        """Give the handle to the calling thread between two steps, for work that changes the model for a while."""
        with self.visitor:
            with self.changed:
                self.n_visitors += 1
            try:
                with self.changed:
                    self.changed.wait_for(lambda: not self.is_turning)
                yield self.handle
            finally:
                with self.changed:
                    self.n_visitors -= 1
                    self.progress = time.monotonic()
                    self.changed.notify_all()

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
            self.is_ending = True
            self.changed.notify_all()
        self.thread.join(END_SECONDS)
        if self.thread.is_alive():  # busy with a long text, or stuck: whoever waits is told
            self.fail_rest([*self.scheduler, *self.begun, *self.waiting], stopped_early())

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
                self.turn()
            except Exception as error:  # of ours, since errors of texts are caught: everyone is told, and we go on
                self.fail_rest([*self.scheduler.clear(), *self.begun], error)
            finally:
                self.begun = []
                self.account(self.scheduler)
                self.budget.tell(self)
                self.wake()
                self.progress = time.monotonic()
                self.totals.steps += 1
                self.totals.seconds += self.progress - before
                with self.changed:
                    self.is_turning = False
                    if self.n_visitors:
                        self.changed.notify_all()
        self.budget.leave(self)
        elsewhere = [text for crew in self.crews for text in crew.close()]
        self.fail_rest([*self.scheduler.clear(), *self.waiting.clear(), *elsewhere], stopped_early())

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

    def turn(self) -> None:
        now = time.monotonic()
        with self.changed:
            elsewhere = [text for crew in self.crews for text in crew.texts]
            for ticket in {*(text.ticket for text in (*self.scheduler, *elsewhere)), *self.waiting.tickets()}:
                if ticket.deadline is not None and now > ticket.deadline:
                    ticket.fail(Expired("the request took too long", "send less at a time, or allow more time"))
            self.waiting.drop_done()
            for crew in self.crews:
                crew.drop_done()
            with self.budget.lock:
                new = self.begun = list(self.admit(now))
            if any(text.fills_a_turn for text in new):
                self.is_due = True  # what is behind it in the queue has its turn next
        for crew in self.crews:
            crew.send()
        work = [*self.scheduler, *new]
        use_threads(self.served.n_weights, sum(text.n_rows for text in work), 1 if elsewhere else self.threads)
        for text in new:
            text.ticket.started = text.ticket.started or now
            if not text.joins:
                self.answer_alone(text)
        self.scheduler.turn(text for text in new if text.joins)

    def admit(self, now: float) -> Iterator[Text]:
        """Remove the texts from the queue for which there is room, in turn: here, or in a worker process.

        The scheduler is asked once per turn, since it counts the texts that it admits only when they have joined.
        """
        new: list[Text] | None = None
        self.account(self.scheduler)
        while (text := self.waiting.first()) is not None:
            left = self.budget.left(self) - self.budget.used_by(self) if self.budget.is_shared else None
            if text.is_for_crew:
                if (left is not None and text.n_bytes > left) or not text.crew.take(text):
                    break
                self.waiting.pop()
                text.ticket.started = text.ticket.started or now
                self.account()
            elif new is not None:
                break
            else:
                here = None if left is None else left + self.budget.used[self].get("here", 0)
                new = list(self.scheduler.admit(self.waiting, here))
                self.account([*self.scheduler, *(text for text in new if text.joins)])
                yield from new
        lacks = text is not None and text.n_bytes > self.budget.left(self) - self.budget.used_by(self)
        self.budget.need(self, text.n_bytes if text is not None and lacks else 0)

    def account(self, here: Iterable[Text] | None = None) -> None:
        """Tell the others how much memory the texts of the crews take, and those `here` if they are given.

        What was told is taken back even if nobody else is left: another engine may come.
        """
        if self.budget.is_shared or self.budget.used_by(self):
            with self.budget.lock:
                for crew in self.crews:
                    self.budget.use(self, crew, crew.n_bytes)
                if here is not None:
                    self.budget.use(self, "here", Load(self.room, here).n_bytes)

    def answer_alone(self, text: Text) -> None:
        """Answer a text that joins no batch: a Call, an empty text, or one of a model whose state is not ours."""
        if text.ticket.is_done:
            return
        self.patient_until = text.ticket.deadline or 0.0
        try:
            with rows_choose(torch.tensor([[text.plan.adapter]], device=self.handle.device)):
                hypotheses = [] if text.sequences is None else decode_alone(text.model, text.sequences)
                self.finished(text, hypotheses)
        except Exception as error:
            self.failed(text, error)
        finally:
            self.progress, self.patient_until = time.monotonic(), 0.0

    def wake(self) -> None:
        """Wake the readers of tickets with new events."""
        with self.telling:
            touched, self.touched = self.touched, set()
        wake(touched)

    # What the scheduler tells

    def heard(self, text: Text, progress: Progress, top: Callable[[], list[Top]]) -> list[int]:
        ticket = text.ticket
        if ticket.first_token is None:
            ticket.first_token = time.monotonic()
        self.count(text, sum(token is not None for token in progress.tokens))
        if not text.is_heard:
            return []
        events, stopped = text.hear(progress, top)
        for event in events:
            ticket.put(event)
        if events:
            with self.telling:
                self.touched.add(ticket)
        return stopped

    def count(self, text: Text, n_generated: int) -> None:
        n_new = text.count(n_generated)
        text.ticket.n_generated += n_new
        with self.telling:
            self.totals.generated_tokens += n_new

    def finished(self, text: Text, hypotheses: list[Hypothesis]) -> None:
        ticket = text.ticket
        try:
            results: list[Any] = text.plan.finish(hypotheses)
        except Exception as error:
            self.failed(text, error)
            return
        if text.sequences is not None and text.sequences.is_beam:
            n_new = sum(len(hypothesis.tokens) + 1 for hypothesis in hypotheses[: len(results)])
            ticket.n_generated += n_new
            with self.telling:
                self.totals.generated_tokens += n_new
        reasons = reasons_of(text, results, hypotheses)
        with self.telling:
            ticket.ended.update(reasons)
        ticket.put(Answer(text.index, results))
        self.is_due = True  # there is room
        with self.telling:
            self.totals.texts += 1
            self.touched.add(ticket)

    def failed(self, text: Text, error: Exception) -> None:
        with self.telling:
            self.totals.errors += 1
        text.ticket.fail(lack_of_memory() if is_out_of_memory(error) else error)
        self.is_due = True  # there is room

    def fail_rest(self, texts: list[Text], error: Exception) -> None:
        for text in texts:
            if not text.ticket.is_done:
                self.failed(text, error)

    # What worker processes tell, in the thread of the crew

    def heard_from(self, crew: Crew, messages: list[tuple[Text, Any]]) -> None:
        for text, message in messages:
            match message:
                case Heard(_, progress, top) if progress is not None:
                    self.heard(text, progress, partial(list, top))
                case Heard():
                    text.ticket.first_token = text.ticket.first_token or time.monotonic()
                case Again():
                    text.restart()
                case Finished(_, hypotheses, n_generated):
                    if not text.is_heard:
                        self.count(text, n_generated)
                    self.finished(text, hypotheses)
                case Failed(_, error):
                    self.failed(text, error)
        self.wake()
        if not messages or any(isinstance(message, LAST) for _, message in messages):
            self.account()
            self.notify()  # there is room
            self.budget.tell(self)
        self.progress = time.monotonic()

    def lost(self, crew: Crew, texts: list[Text]) -> None:
        again = []
        for text in texts:
            text.n_lost += 1
            text.restart()
            if text.n_lost > 1:
                self.failed(text, NoMemory("the process that decoded this request ended twice", "send less at a time"))
            else:
                again.append(text)
        with self.changed:
            self.waiting.add_again(again)
        self.account()
        self.notify()
        self.budget.tell(self)


def reasons_of(text: Text, results: list[Any], hypotheses: list[Hypothesis]) -> list[str]:
    """Return why each result ended: at EOS or a stop string, or at the maximum length."""
    if text.sequences is None:
        return ["stop"] * len(results)
    is_full = [len(hypothesis.tokens) >= text.sequences.limit for hypothesis in hypotheses]
    ended = [getattr(result, "ended", "length" if full else "stop") for result, full in zip(results, is_full)]
    return ["length" if reason == "length" else "stop" for reason in ended]


def stopped_early() -> Closing:
    return Closing("the server stopped before the request was finished", "send it again")


def lack_of_memory() -> NoMemory:
    return NoMemory("there is not enough memory for this request", "send it again later, or a shorter one")

"""A process that decodes texts for the engine of another process (crew.py): a scheduler with one core.

    ─▶  Job        a text to decode, with a number
    ─▶  Drop       the numbers of texts that nobody waits for
    ◀─  Heard      the steps of a text in a turn: all of them if it is streamed, otherwise only that it has begun
    ◀─  Again      the text starts again: forget what was heard
    ◀─  Finished   its hypotheses
    ◀─  Failed     its error

Messages travel in lists, one per turn of the scheduler, over a connection between the two processes. An empty list says
that the process is still at work. The process ends when the connection closes, even if the other one is killed.
"""

import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from clearformer.errors import CheckpointError, ClearformerError
from clearformer.generation.decode import Hypothesis
from clearformer.generation.open_policies import Progress, Sequences, n_generated
from clearformer.generation.open_tables import Tables
from clearformer.memory import collect_rarely, keep_freed_memory
from clearformer.serve.scheduler import Room, Scheduler
from clearformer.serve.texts import Text
from clearformer.serve.ticket import Ticket
from clearformer.serve.waiting import Waiting
from clearformer.serve.work import Plan, Top

BEAT_SECONDS = 1.0


class Job(NamedTuple):
    number: int
    sequences: Sequences
    n_bytes: int
    stream: bool
    """Whether every step is reported."""
    top: int = 0
    """Most probable tokens in every report."""


class Drop(NamedTuple):
    numbers: Sequence[int]


class Heard(NamedTuple):
    number: int
    steps: Sequence[Progress] | None
    """None for the first step of a text that is not streamed."""
    top: Sequence[Top] = ()


class Again(NamedTuple):
    number: int


class Finished(NamedTuple):
    number: int
    hypotheses: list[Hypothesis]
    n_generated: int
    """Tokens of greedy search and of samples, EOS included."""


class Failed(NamedTuple):
    number: int
    error: Exception


LAST = (Finished, Failed)


@dataclass
class Remote:
    """What a scheduler asks of the work of a text."""

    number: int
    stream: bool
    stop: Sequence[str] = ()
    top: int = 0
    adapter: str | None = None

    def plan(self, handle: Any) -> list[Plan]:
        raise NotImplementedError("it was planned by the process that sent it")


@dataclass(eq=False)
class RemoteText(Text):
    tell: Callable[[Any], None] = print
    is_begun: bool = False

    def restart(self) -> None:
        super().restart()
        self.tell(Again(self.index))


class Worker:
    """Decodes the jobs that arrive on a connection."""

    def __init__(self, connection: Connection, model: Any, room: Room, has_tables: bool = False) -> None:
        self.connection, self.model, self.tables = connection, model, Tables.of(model) if has_tables else None
        self.waiting, self.scheduler = Waiting(), Scheduler(room, self)
        self.texts: dict[int, RemoteText] = {}
        self.outbox: list[Any] = []
        self.beat = time.monotonic()

    def run(self) -> None:
        """Work until the connection closes, which raises EOFError or OSError."""
        while True:
            self.receive()
            try:
                self.scheduler.turn(list(self.scheduler.admit(self.waiting)))
            except Exception as error:  # of ours, since errors of texts are caught
                for text in self.scheduler.clear():
                    self.failed(text, error)
            if self.outbox or time.monotonic() - self.beat > BEAT_SECONDS:
                self.connection.send(self.outbox)
                self.outbox, self.beat = [], time.monotonic()

    def receive(self) -> None:
        """Take what has arrived, and wait for it if there is nothing else to do."""
        while not (self.waiting or self.scheduler.n_texts) or self.connection.poll():
            for message in self.connection.recv():
                if isinstance(message, Drop):
                    for number in message.numbers:
                        if number in self.texts:
                            self.texts.pop(number).ticket.cancel()
                    self.waiting.drop_done()
                else:
                    self.take(message)

    def take(self, job: Job) -> None:
        plan = Plan(job.sequences, lambda hypotheses: [])
        work = Remote(job.number, job.stream, top=job.top)
        text = RemoteText(Ticket(1), work, job.number, plan, self.model, n_bytes=job.n_bytes, tell=self.outbox_add)
        if self.tables is not None and not job.top and self.tables.can_hold(job.sequences):
            text.tables = self.tables
        self.texts[job.number] = text
        self.waiting.add([text])

    def outbox_add(self, message: Any) -> None:
        self.outbox.append(message)

    # What the scheduler tells

    def heard(self, text: Any, steps: Sequence[Progress], top: Callable[[], list[Top]]) -> list[int]:
        text.n_generated += n_generated(steps)
        if text.is_heard or not text.is_begun:
            text.is_begun = True
            best = top() if text.work.top else ()
            self.outbox.append(Heard(text.index, steps if text.is_heard else None, best))
        return []

    def finished(self, text: Text, hypotheses: list[Hypothesis]) -> None:
        if self.texts.pop(text.index, None) is not None:
            self.outbox.append(Finished(text.index, hypotheses, text.n_generated))

    def failed(self, text: Text, error: Exception) -> None:
        if self.texts.pop(text.index, None) is not None:
            self.outbox.append(Failed(text.index, portable(error)))


def portable(error: Exception) -> Exception:
    """Return an error that can be sent to another process."""
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception:
        copy = None
    return error if type(copy) is type(error) else RuntimeError(f"{type(error).__name__}: {error}")


def serve(handle: int) -> None:
    """Receive where the model comes from, open it, send None or an error, and work until the connection closes."""
    import torch

    connection = Connection(handle)
    keep_freed_memory()
    collect_rarely()
    torch.set_num_threads(1)
    try:
        opener, room = connection.recv()
        try:
            model = opener.open()[0].model
            if opener.read_stamps() != opener.stamps:
                raise CheckpointError(f"the files of {opener.path} have changed", "open it again")
        except (ClearformerError, OSError, ValueError) as error:
            connection.send(portable(error))
            return
        connection.send(None)
        with torch.inference_mode():
            Worker(connection, model, room, not opener.adapters).run()
    except (EOFError, OSError):
        return

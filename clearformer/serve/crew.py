"""The worker processes of an engine: a small model on a CPU is decoded by several processes, with a core each.

    crew = Crew(opener, 2, room, listener)             starts the processes, which open the model (worker.py)
    crew.is_ready                                      until then, and if all have ended, the engine decodes
    crew.take(text); crew.send()                       gives a text to the one that has the least to do

A step of a small model is a millisecond of Python and small products. Threads of one process take turns with Python,
and two threads of one product wait for each other; processes do neither.

If a process ends, its texts go back to the queue, and another one takes its place. A text that was in progress at two
such ends fails, since it may be the reason.
"""

import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from subprocess import Popen
from threading import Lock, Thread
from typing import Any, Protocol

from clearformer.data.workers import start
from clearformer.errors import MachineError
from clearformer.serve.opener import Opener
from clearformer.serve.scheduler import Load, Room
from clearformer.serve.texts import Text
from clearformer.serve.worker import LAST, Drop, Job

SMALL = 3e7  # weights: with more, the threads of a product share its work well, and copies take memory
MOST = 8  # processes that are started unless a number is given
STUCK_SECONDS = 30.0
END_SECONDS = 5.0
LOOK_SECONDS = 0.5  # between two looks for processes that take the place of others


def workers_for(n_weights: int, n_threads: int) -> int:
    """Return the number of processes for a model: one per thread of torch, or 0 if one process is better."""
    return min(n_threads, MOST) if n_threads > 1 and n_weights <= SMALL else 0


class Listener(Protocol):
    """The crews of an engine (crews.py): they are notified in the thread of this one."""

    def heard_from(self, crew: "Crew", messages: list[tuple[Text, Any]]) -> None:
        """Take the messages of a process about its texts."""

    def lost(self, crew: "Crew", texts: list[Text]) -> None:
        """Take back the texts of a process that has ended."""


@dataclass(eq=False)
class Member:
    """A process, and the texts that it decodes, by number."""

    process: Popen
    connection: Connection
    texts: dict[int, Text] = field(default_factory=dict)
    outbox: list[Any] = field(default_factory=list)
    is_ready: bool = False
    is_lost: bool = False
    heard_at: float = field(default_factory=time.monotonic)

    @property
    def n_hypotheses(self) -> int:
        return sum(text.n_rows for text in self.texts.values())


class Crew:
    """`n` processes that open the same model. `room` is what each of them may hold."""

    def __init__(self, opener: Opener, n: int, room: Room, listener: Listener) -> None:
        self.opener, self.room, self.listener = opener, room, listener
        self.numbers, self.lock = count(), Lock()
        self.problem: Exception | None = None  # why a process could not open the model
        self.is_closing = self.is_retiring = False
        self.members: list[Member] = []
        try:
            for _ in range(n):
                self.members.append(self.begin())
        except MachineError:
            for member in self.members:
                member.connection.close()  # which ends the process
            raise
        self.thread = Thread(target=self.read, name=f"workers of {opener.path.name}", daemon=True)
        self.thread.start()

    def begin(self) -> Member:
        """Start a process, which opens the model."""
        here, there = Pipe()
        try:
            process = start(there, "clearformer.serve.worker", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
            here.send((self.opener, self.room))
        except OSError as error:
            here.close()
            message = f"a worker process cannot be started: {error.strerror or error}"
            raise MachineError(message, "set --workers 0, or free memory or processes of this machine") from None
        finally:
            there.close()
        return Member(process, here)

    # For the engine

    @property
    def is_ready(self) -> bool:
        """Whether a process can take texts."""
        return any(member.is_ready for member in self.members)

    @property
    def is_stuck(self) -> bool:
        late = time.monotonic() - STUCK_SECONDS
        return any(member.texts and member.heard_at < late for member in self.members)

    @property
    def texts(self) -> list[Text]:
        with self.lock:
            return [text for member in self.members for text in member.texts.values()]

    @property
    def n_bytes(self) -> int:
        """What the texts of the processes take, at most."""
        with self.lock:
            return sum(Load(self.room, member.texts.values()).n_bytes for member in self.members)

    def __len__(self) -> int:
        return sum(len(member.texts) for member in self.members)

    @property
    def processes(self) -> Iterator[Popen]:
        return (member.process for member in list(self.members))

    def suits(self, text: Text) -> bool:
        """Whether a process can decode a text: `stop` needs every step here, since it ends the text."""
        return text.joins and not text.work.stop and text.n_bytes <= self.room.bytes

    def take(self, text: Text) -> bool:
        """Choose the process that has the least to do for a text, to be sent by `send`; False if none has room."""
        for member in sorted((one for one in self.members if one.is_ready), key=lambda one: one.n_hypotheses):
            with self.lock:
                if member.is_lost or not Load(self.room, member.texts.values()).has_room_for(text):
                    continue
                if not member.texts:
                    member.heard_at = time.monotonic()
                number = next(self.numbers)
                member.texts[number] = text
                member.outbox.append(Job(number, text.sequences, text.n_bytes, text.work.stream, text.work.top))
            return True
        return False

    def drop_done(self) -> None:
        """Let the processes drop the texts whose request is done."""
        for member in self.members:
            with self.lock:
                numbers = [number for number, text in member.texts.items() if text.ticket.is_done]
                for number in numbers:
                    del member.texts[number]
                if numbers:
                    member.outbox.append(Drop(numbers))

    def send(self) -> None:
        """Send what the processes have to know. This may wait for them, so that the caller must not hold a lock."""
        for member in self.members:
            messages, member.outbox = member.outbox, []
            if messages and not member.is_lost:
                with suppress(OSError):  # it has ended: `read` notices, and takes care of its texts
                    member.connection.send(messages)

    def retire(self) -> None:
        """End once the texts in progress are done, since there are newer weights."""
        self.is_retiring = True

    def close(self) -> list[Text]:
        """End the processes, and return the texts that they had."""
        with self.lock:
            self.is_closing = True
            texts = [text for member in self.members for text in member.texts.values()]
            for member in self.members:
                member.texts.clear()
        for process in self.processes:
            process.kill()
        self.thread.join(END_SECONDS)
        return texts

    # The thread

    def read(self) -> None:
        """Receive what the processes send, until they are ended."""
        while not self.is_closing and not (self.is_retiring and not self.texts):
            members = {member.connection: member for member in self.members if not member.is_lost}
            if not members:
                break
            for connection in wait(list(members), LOOK_SECONDS):
                self.receive(members[connection])  # type: ignore[index]
        with self.lock:
            texts = [text for member in self.members for text in member.texts.values()]
            for member in self.members:
                member.is_ready, member.is_lost, member.texts = False, True, {}
        for member in self.members:
            member.connection.close()  # which ends the process
        for process in self.processes:
            process.wait()
        if not self.is_closing:
            self.listener.lost(self, texts)

    def receive(self, member: Member) -> None:
        try:
            messages = member.connection.recv()
        except (EOFError, OSError):
            self.replace(member)
            return
        member.heard_at = time.monotonic()
        if not member.is_ready:
            member.is_ready, self.problem = messages is None, messages
            self.listener.heard_from(self, [])
            return
        known = []
        with self.lock:
            for message in messages:
                if (text := member.texts.get(message.number)) is not None:  # else it was dropped meanwhile
                    known.append((text, message))
                    if isinstance(message, LAST):
                        del member.texts[message.number]
        self.listener.heard_from(self, known)

    def replace(self, member: Member) -> None:
        """Take back the texts of a process that has ended, and start another one if it had opened the model."""
        with self.lock:
            was_ready, member.is_ready, member.is_lost = member.is_ready, False, True
            texts, member.texts = list(member.texts.values()), {}
        member.connection.close()
        member.process.wait()
        if self.is_closing:
            return
        if was_ready and not self.is_retiring:
            code = member.process.returncode
            warnings.warn(f"a worker of {self.opener.path.name} ended with {code}, and is started again", stacklevel=2)
            with suppress(MachineError):  # the system has no more processes: the others do its work
                self.members[self.members.index(member)] = self.begin()
        self.listener.lost(self, texts)

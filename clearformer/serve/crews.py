"""The crews of an engine: the last one decodes new texts, earlier ones finish theirs with the weights they have."""

import time
from collections.abc import Iterator
from functools import partial
from typing import Any, Protocol

from clearformer.serve.crew import Crew
from clearformer.serve.reports import Reports
from clearformer.serve.texts import Text
from clearformer.serve.work import NoMemory
from clearformer.serve.worker import LAST, Again, Failed, Finished, Heard


class Home(Protocol):
    """The engine, in the thread of a crew."""

    def progressed(self) -> None: ...

    def freed_room(self) -> None:
        """Texts have left, or a process is ready: look at the queue."""

    def take_back(self, texts: list[Text]) -> None:
        """Let texts wait again, before all others."""


class Crews:
    """Messages of the processes are reported to the tickets, in the thread of their crew."""

    def __init__(self, home: Home, reports: Reports) -> None:
        self.home, self.reports = home, reports
        self.all: list[Crew] = []

    def __iter__(self) -> Iterator[Crew]:
        return iter(list(self.all))

    def add(self, crew: Crew) -> None:
        self.all = [*(one for one in self.all if one.thread.is_alive()), crew]

    @property
    def texts(self) -> list[Text]:
        return [text for crew in self for text in crew.texts]

    @property
    def n_texts(self) -> int:
        return sum(map(len, self))

    @property
    def processes(self) -> list[int]:
        """The ids of the processes that are alive."""
        return [process.pid for crew in self for process in crew.processes if process.poll() is None]

    @property
    def is_stuck(self) -> bool:
        return any(crew.is_stuck for crew in self)

    def drop_done(self) -> None:
        for crew in self:
            crew.drop_done()

    def send(self) -> None:
        for crew in self:
            crew.send()

    def close(self) -> list[Text]:
        """End all processes, and return the texts that they had."""
        return [text for crew in self for text in crew.close()]

    # Messages of the processes, in the thread of their crew

    def heard_from(self, crew: Crew, messages: list[tuple[Text, Any]]) -> None:
        reports = self.reports
        for text, message in messages:
            match message:
                case Heard(_, steps, top) if steps is not None:
                    reports.heard(text, steps, partial(list, top))
                case Heard():
                    text.ticket.first_token = text.ticket.first_token or time.monotonic()
                case Again():
                    text.restart()
                case Finished(_, hypotheses, n_generated):
                    if not text.is_heard:
                        reports.count(text, n_generated)
                    reports.finished(text, hypotheses)
                case Failed(_, error):
                    reports.failed(text, error)
        reports.wake()
        if not messages or any(isinstance(message, LAST) for _, message in messages):
            self.home.freed_room()
        self.home.progressed()

    def lost(self, crew: Crew, texts: list[Text]) -> None:
        again = []
        for text in texts:
            text.n_lost += 1
            text.restart()
            if text.n_lost > 1:
                message = "the process that decoded this request ended twice"
                self.reports.failed(text, NoMemory(message, "send less at a time"))
            else:
                again.append(text)
        self.home.take_back(again)
        self.home.freed_room()

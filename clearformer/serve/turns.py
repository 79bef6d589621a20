"""A turn of an engine: texts leave and join, and those in progress make a step. Other work is done between two steps.

Texts leave whose deadline has passed, or whose client has left.
"""

import time
from threading import Condition

from clearformer.serve.admission import Admission
from clearformer.serve.between import Between, expire
from clearformer.serve.reports import Reports
from clearformer.serve.served import Served
from clearformer.serve.shared import Sharing
from clearformer.serve.texts import Text
from clearformer.serve.watchdog import Watchdog
from clearformer.threads import use_threads


class Turns:
    """`changed` protects the queue. `threads` is the number of threads of torch for large steps."""

    def __init__(
        self, admission: Admission, reports: Reports, watchdog: Watchdog, changed: Condition, threads: int
    ) -> None:
        self.admission, self.reports, self.watchdog, self.changed = admission, reports, watchdog, changed
        self.waiting, self.scheduler, self.crews = admission.waiting, admission.scheduler, admission.crews
        self.between, self.threads = Between(reports, watchdog, self.expire), threads
        self.begun: list[Text] = []  # texts that have left the queue in this turn

    def make(self, served: Served) -> None:
        now = time.monotonic()
        with self.changed:
            self.expire()
            elsewhere = self.crews.texts
            self.waiting.drop_done()
            self.crews.drop_done()
            with self.admission.budget.lock:
                new = self.begun = list(self.admission.admit(now))
            if any(text.fills_a_turn for text in new):
                self.reports.look_again()  # what is behind it in the queue has its turn next
        self.crews.send()
        work = [*self.scheduler, *new]
        use_threads(served.n_weights, sum(text.n_rows for text in work), 1 if elsewhere else self.threads)
        for text in new:
            text.ticket.started = text.ticket.started or now
            if not text.joins and not isinstance(text, Sharing):
                self.between.answer_alone(text)
        self.between.answer_together([text for text in new if isinstance(text, Sharing)])
        self.scheduler.turn(text for text in new if text.joins)

    def expire(self) -> None:
        """End the requests whose deadline has passed: texts in progress, here or elsewhere, and in the queue."""
        with self.changed:
            texts = [*self.scheduler, *self.crews.texts, *self.begun]
            expire({*(text.ticket for text in texts), *self.waiting.tickets()})

    def end(self) -> None:
        """Account for what the turn has changed, also if it has raised an error, and wake those who wait for it."""
        self.begun = []
        self.admission.account(self.scheduler)
        self.admission.tell()
        self.reports.wake()
        self.watchdog.progressed()

    def give_up(self) -> list[Text]:
        """Give up all texts in progress, and return them."""
        return [*self.scheduler.clear(), *self.begun]

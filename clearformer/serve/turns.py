"""A turn of an engine: texts leave and join, one text that joins no batch is answered, and the others make a step.

Before it, texts end whose deadline has passed, and those whose client has left.
"""

import time
from collections.abc import Iterable
from threading import Condition

import torch

from clearformer.generation.continuous import decode_alone
from clearformer.layers.row_choice import rows_choose
from clearformer.serve.admission import Admission
from clearformer.serve.reports import Reports
from clearformer.serve.served import Served
from clearformer.serve.ticket import Ticket
from clearformer.serve.waiting import Text
from clearformer.serve.watchdog import Watchdog
from clearformer.serve.work import Expired
from clearformer.threads import use_threads


class Turns:
    """`changed` protects the queue. `threads` is the number of threads of torch for large steps."""

    def __init__(
        self, admission: Admission, reports: Reports, watchdog: Watchdog, changed: Condition, threads: int
    ) -> None:
        self.admission, self.reports, self.watchdog, self.changed = admission, reports, watchdog, changed
        self.waiting, self.scheduler, self.crews = admission.waiting, admission.scheduler, admission.crews
        self.threads = threads
        self.begun: list[Text] = []  # texts that have left the queue in this turn

    def make(self, served: Served) -> None:
        now = time.monotonic()
        with self.changed:
            elsewhere = self.crews.texts
            expire({*(text.ticket for text in (*self.scheduler, *elsewhere)), *self.waiting.tickets()}, now)
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
            if not text.joins:
                self.answer_alone(text)
        self.scheduler.turn(text for text in new if text.joins)

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

    def answer_alone(self, text: Text) -> None:
        """Answer a text that joins no batch: a Call, an empty text, or one of a model whose state is not ours."""
        if text.ticket.is_done:
            return
        with self.watchdog.patient(text.ticket.deadline):
            try:
                with rows_choose(torch.tensor([[text.plan.adapter]], device=text.device)):
                    hypotheses = [] if text.sequences is None else decode_alone(text.model, text.sequences)
                    self.reports.finished(text, hypotheses)
            except Exception as error:
                self.reports.failed(text, error)


def expire(tickets: Iterable[Ticket], now: float) -> None:
    """End the requests whose deadline has passed."""
    for ticket in tickets:
        if ticket.deadline is not None and now > ticket.deadline:
            ticket.fail(Expired("the request took too long", "send less at a time, or allow more time"))

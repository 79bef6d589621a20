"""What an engine computes between two steps: texts that join no batch, and passes that requests share.

This may take long: before each pass of the network (handles/passes.py), the engine checks whether anybody still waits.
Work for clients that have left, or whose time is over, ends there.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from clearformer.generation.continuous import decode_alone
from clearformer.handles.passes import watched
from clearformer.layers.row_choice import rows_choose
from clearformer.serve.reports import Reports, stopped_early
from clearformer.serve.shared import Sharing, compute
from clearformer.serve.texts import Text
from clearformer.serve.ticket import Ticket
from clearformer.serve.watchdog import Watchdog
from clearformer.serve.work import Cancelled, Expired


class Between:
    """`expire` ends all requests of the engine whose deadline has passed."""

    is_ending = False
    """Whether the engine stops at once."""

    def __init__(self, reports: Reports, watchdog: Watchdog, expire: Callable[[], None]) -> None:
        self.reports, self.watchdog, self.expire = reports, watchdog, expire

    def answer_alone(self, text: Text) -> None:
        """Answer a text that joins no batch: a Call, an empty text, or one of a model whose state is not ours."""

        def answer() -> None:
            hypotheses = [] if text.sequences is None else decode_alone(text.model, text.sequences)
            self.reports.finished(text, hypotheses)

        if not text.ticket.is_done:
            try:
                self.attend([text], answer)
            except Exception as error:
                self.reports.fail_rest([text], error)

    def answer_together(self, texts: Sequence[Sharing]) -> None:
        """Compute a pass that texts share. If it raises an error, each of them has a pass of its own."""
        texts = [text for text in texts if not text.ticket.is_done]
        if not texts:
            return
        try:
            self.attend(texts, lambda: compute(texts))
        except Exception as error:
            if len(texts) == 1:
                self.reports.fail_rest(texts, error)
            else:
                for text in texts:
                    self.answer_together([text])
            return
        for text in texts:
            if text.is_taken and not text.ticket.is_done:
                self.reports.finished(text, text.rows)

    def attend(self, texts: Sequence[Text], function: Callable[[], Any]) -> None:
        """Call a function for these texts, as long as somebody waits for them."""
        tickets = [text.ticket for text in texts]
        deadlines = [ticket.deadline for ticket in tickets]
        until = max([0.0, *(deadline for deadline in deadlines if deadline is not None)])
        adapters = torch.tensor([[texts[0].plan.adapter]], device=texts[0].device)
        with self.watchdog.patient(until), watched(lambda: self.look(tickets)), rows_choose(adapters):
            function()

    def look(self, tickets: Iterable[Ticket]) -> None:
        self.watchdog.progressed()
        self.expire()
        if self.is_ending:
            raise stopped_early()
        if all(ticket.is_done for ticket in tickets):
            raise Cancelled("nobody waits for this work")


def expire(tickets: Iterable[Ticket]) -> None:
    """End the requests whose deadline has passed."""
    now = time.monotonic()
    for ticket in tickets:
        if ticket.deadline is not None and now > ticket.deadline:
            ticket.fail(Expired("the request took too long", "send less at a time, or allow more time"))

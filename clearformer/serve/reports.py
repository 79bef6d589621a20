"""What happens to the texts of an engine, reported to their tickets and counted.

    heard        some steps of a text       the events of its stream
    finished     its hypotheses             its Answer
    failed       its error                  the end of the whole request

The scheduler reports in the thread of the engine, worker processes in the thread of their crew. Readers of tickets wake
up with `wake`, all of a step at once.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any

from clearformer.generation.decode import Hypothesis
from clearformer.generation.open_policies import Progress, n_generated
from clearformer.memory import is_out_of_memory
from clearformer.serve.texts import Text
from clearformer.serve.ticket import Ticket, wake
from clearformer.serve.work import Answer, Closing, NoMemory, Top


@dataclass
class Totals:
    """What an engine has done so far."""

    steps: int = 0
    seconds: float = 0.0  # of steps
    texts: int = 0
    errors: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0


class Reports:
    """`look_again` is called whenever a text is done, so that there is room for another one."""

    def __init__(self, look_again: Callable[[], None]) -> None:
        self.look_again, self.totals, self.lock = look_again, Totals(), RLock()
        self.touched: set[Ticket] = set()  # with new events

    def wake(self) -> None:
        """Wake the readers of tickets with new events."""
        with self.lock:
            touched, self.touched = self.touched, set()
        wake(touched)

    def heard(self, text: Text, steps: Sequence[Progress], top: Callable[[], list[Top]]) -> list[int]:
        ticket = text.ticket
        if ticket.first_token is None:
            ticket.first_token = time.monotonic()
        if n_new := n_generated(steps):
            self.count(text, n_new)
        if not text.is_heard:
            return []
        events, stopped = text.hear(steps, top)
        for event in events:
            ticket.put(event)
        if events:
            with self.lock:
                self.touched.add(ticket)
        return stopped

    def count(self, text: Text, n_generated: int) -> None:
        n_new = text.count(n_generated)
        text.ticket.n_generated += n_new
        with self.lock:
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
            with self.lock:
                self.totals.generated_tokens += n_new
        reasons = reasons_of(text, results, hypotheses)
        with self.lock:
            ticket.ended.update(reasons)
        ticket.put(Answer(text.index, results))
        self.look_again()
        with self.lock:
            self.totals.texts += 1
            self.touched.add(ticket)

    def failed(self, text: Text, error: Exception) -> None:
        with self.lock:
            self.totals.errors += 1
        text.ticket.fail(lack_of_memory() if is_out_of_memory(error) else error)
        self.look_again()

    def fail_rest(self, texts: Iterable[Text], error: Exception) -> None:
        for text in texts:
            if not text.ticket.is_done:
                self.failed(text, error)


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

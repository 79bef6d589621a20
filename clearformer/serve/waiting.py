"""The queue of an engine: first come, first served, but one text per request at a time.

A request of 200 texts leaves the queue text by text, in turn with the requests that came after it. So a short request
waits for one text of each request before it, not for all of them. Nothing is ever overtaken: if the next text has no
room yet, all others wait with it, so that a large text cannot starve.
"""

from collections import deque
from collections.abc import Iterator

from clearformer.serve.shared import Sharing, take
from clearformer.serve.texts import Text
from clearformer.serve.ticket import Ticket


class Waiting:
    """Texts that wait, by request."""

    def __init__(self) -> None:
        self.requests = deque[deque[Text]]()
        self.n = 0

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[Text]:
        return (text for request in self.requests for text in request)

    @property
    def n_hypotheses(self) -> int:
        return sum(text.n_rows for text in self)

    def add(self, texts: list[Text]) -> None:
        if texts:
            self.requests.append(deque(texts))
            self.n += len(texts)

    def add_again(self, texts: list[Text]) -> None:
        """Let texts wait again, before all others."""
        for text in reversed(texts):
            self.requests.appendleft(deque([text]))
        self.n += len(texts)

    def tickets(self) -> list[Ticket]:
        return [request[0].ticket for request in self.requests]

    def drop_done(self) -> None:
        """Drop the requests that are done, since they were cancelled or their time is over."""
        if any(ticket.is_done for ticket in self.tickets()):
            self.requests = deque(request for request in self.requests if not request[0].ticket.is_done)
            self.n = sum(map(len, self.requests))

    def first(self) -> Text | None:
        """Return the text whose turn it is."""
        return self.requests[0][0] if self.requests else None

    def pop(self) -> Text:
        """Remove the text whose turn it is; the next one of its request waits for its turn at the end."""
        texts = self.requests.popleft()
        text = texts.popleft()
        self.n -= 1
        if texts:
            self.requests.append(texts)
        return text

    def take_pass(self, most: int) -> list[Sharing]:
        """Take items of the text whose turn it is, and of those that share passes with it: `most` tokens together.

        Texts with items left stay in the queue, where the first one waits for its next turn at the end.
        """
        alike = [request[0] for request in self.requests if isinstance(request[0], Sharing)]
        first = alike[0]
        assert first is self.first(), "it is its turn"
        taken = take([text for text in alike if text.shares == first.shares and not text.ticket.is_done], most)
        gone = {text for text in taken if text.is_taken}
        self.requests.rotate(-1)
        self.requests = deque(request for request in self.requests if request[0] not in gone)
        self.n -= len(gone)
        return taken

    def clear(self) -> list[Text]:
        texts = [*self]
        self.requests.clear()
        self.n = 0
        return texts

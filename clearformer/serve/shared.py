"""Work of several requests in one pass of the model: vectors, classes, scores, transcripts.

    Apply(verb, items)      an Answer with the list of rows: a row for each item
    verb.compute            the rows of the items of a pass, which come from one request or from several

Requests with equal verbs, of the same weights and adapter, share passes. A pass has one item of each request in turn,
as many as fit: many small requests make one pass, a large request is divided, and neither waits for all of the other.

The rows are those of the handle, which computes an item alone or in company with the same result, but for rounding.
"""

import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from clearformer.serve.texts import Text
from clearformer.serve.work import Plan
from clearformer.text import Tokenizer


class Item(NamedTuple):
    """What `compute` takes, and its size: the tokens of a text, or of a text that takes as long."""

    value: Any
    size: int


class Verb(ABC):
    """What is computed of each item. A frozen dataclass whose fields are its settings: equal verbs do the same."""

    @abstractmethod
    def prepare(self, handle: Any, items: Sequence[Any]) -> list[Item]:
        """Check and measure the items of a request, in the thread of the client."""

    @abstractmethod
    def compute(self, handle: Any, items: list[Any]) -> list[Any]:
        """Return a row for each item, as the handle does offline."""


@dataclass(frozen=True)
class Shared(Plan):
    handle: Any = None
    verb: Verb | None = None
    items: Sequence[Item] = ()


@dataclass(frozen=True)
class Apply:
    """Apply a verb to the items of a request."""

    verb: Verb
    items: Sequence[Any]
    adapter: str | None = None
    stop: Sequence[str] = ()
    stream: bool = False
    top: int = 0

    def plan(self, handle: Any) -> list[Plan]:
        items = self.verb.prepare(handle, self.items)
        return [Shared(None, lambda rows: [rows], handle=handle, verb=self.verb, items=items)]


@dataclass(eq=False)
class Sharing(Text):
    """The items of a request, and the rows of those that are computed, in order."""

    rows: list[Any] = field(default_factory=list)
    n_taken: int = 0  # items that are computed, or that the present pass computes

    @property
    def shared(self) -> Shared:
        assert isinstance(self.plan, Shared)
        return self.plan

    @property
    def shares(self) -> Hashable:
        """Texts with equal values share passes."""
        return id(self.shared.handle), self.shared.adapter, self.shared.verb

    @property
    def is_taken(self) -> bool:
        """Whether no items are left for another pass."""
        return self.n_taken == len(self.shared.items)

    @property
    def present(self) -> Sequence[Item]:
        """The items of the present pass."""
        return self.shared.items[len(self.rows) : self.n_taken]

    @property
    def n_rows(self) -> int:
        return sum(item.size for item in self.present)

    @property
    def fills_a_turn(self) -> bool:
        return True


def text_sizes(handle: Any, tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
    """Return the number of tokens of each text that a model reads."""
    return [min(len(ids), most_tokens(handle)) for ids in tokenizer.encode(list(texts))]


def most_tokens(handle: Any) -> int:
    """Return the length at which a model cuts or refuses texts."""
    return int(getattr(handle, "max_tokens", 0) or getattr(handle.model.config, "max_length", sys.maxsize))


def take(texts: Sequence[Sharing], most: int) -> list[Sharing]:
    """Choose the items of a pass: one of each text in turn, of at most `most` tokens together. Returns their texts.

    The first item is taken even if it is larger. A text without any items takes part once.
    """
    taken: dict[Sharing, None] = {}
    size, turn = 0, deque(texts)
    while turn:
        text = turn.popleft()
        item = None if text.is_taken else text.shared.items[text.n_taken]
        if item is not None:
            if taken and size + item.size > most:
                continue
            size += item.size
            text.n_taken += 1
        taken[text] = None
        if not text.is_taken:
            turn.append(text)
    return list(taken)


def compute(texts: Sequence[Sharing]) -> None:
    """Compute the present items of texts that share a pass, and add their rows."""
    first = texts[0].shared
    assert first.verb is not None
    rows = first.verb.compute(first.handle, [item.value for text in texts for item in text.present])
    assert len(rows) == sum(len(text.present) for text in texts), "a row for each item"
    start = 0
    for text in texts:
        n = len(text.present)
        text.rows += rows[start : start + n]
        start += n

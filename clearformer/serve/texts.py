"""A text of a request in an engine: what is to be decoded, who can do it, and what its client has seen of it."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from clearformer.generation.open_policies import Progress
from clearformer.generation.open_tables import Tables
from clearformer.handles.writer import GeneratedText
from clearformer.serve.ticket import Ticket
from clearformer.serve.work import Call, Ended, Event, Plan, Reason, Token, Top, Work


@dataclass(eq=False)
class Text:
    """One text of a request, and what its client has seen of it."""

    ticket: Ticket
    work: Work
    index: int
    plan: Plan
    model: Any = None
    tables: Tables | None = None  # where it is decoded, or None for a batch that grows
    n_bytes: int = 0  # of its caches, at most
    is_alone: bool = False  # whether it cannot join a batch
    kind: Hashable = None  # texts of the same kind are decoded together, as the scheduler decides
    trial: int = 0  # texts with another number are decoded apart, to find out which of them raises an error
    heard: list[GeneratedText] = field(default_factory=list)  # the text of each sequence
    n_heard: list[int] = field(default_factory=list)  # the tokens of each sequence
    n_again: list[int] = field(default_factory=list)  # tokens that the client knows, since the text started again
    n_generated: int = 0  # tokens since it started, the last time
    n_counted: int = 0
    crew: Any = None  # the worker processes that can decode it (crew.py), or None
    n_lost: int = 0  # worker processes that ended while they decoded it

    @property
    def sequences(self) -> Any:
        return self.plan.sequences

    @property
    def joins(self) -> bool:
        """Whether it joins a batch: not a Call, an empty text, or a text of a model whose state is not ours."""
        return self.sequences is not None and not self.is_alone

    @property
    def fills_a_turn(self) -> bool:
        """Whether the engine is busy with it alone for a while: a Call, or a text that is decoded alone."""
        return isinstance(self.work, Call) or (self.sequences is not None and self.is_alone)

    @property
    def is_for_crew(self) -> bool:
        """Whether a worker process decodes it."""
        return self.crew is not None and self.crew.is_ready

    @property
    def device(self) -> Any:
        return next(self.model.parameters()).device

    @property
    def n_rows(self) -> int:
        """The vectors that a layer computes in a step: one per hypothesis."""
        return 1 if self.sequences is None else int(self.sequences.width)

    @property
    def is_heard(self) -> bool:
        """Whether the tokens are read as they are generated."""
        return bool(self.work.stream or self.work.stop)

    def restart(self) -> None:
        """Forget the tokens so far, except that the client has seen them."""
        self.kind, self.tables = None, None
        known = self.n_again or [0] * len(self.n_heard)  # it may start again twice
        self.n_again, self.n_heard = list(map(max, known, self.n_heard)), [0] * len(self.n_heard)
        self.n_generated = 0

    def count(self, n_generated: int) -> int:
        """Count the tokens of a step; returns how many of them were not generated before the text started again."""
        self.n_generated += n_generated
        n_new = max(0, self.n_generated - self.n_counted)
        self.n_counted += n_new
        return n_new

    def hear(self, steps: Sequence[Progress], top: Callable[[], list[Top]]) -> tuple[list[Event], list[int]]:
        """Return the events of some steps, and the sequences that contain a stop string."""
        work = self.work
        if not self.heard:
            tokenizer, before = self.plan.tokenizer, self.plan.before
            assert tokenizer is not None
            self.heard = [GeneratedText(tokenizer, before, work.stop) for _ in steps[0].tokens]
            self.n_heard = [0] * len(self.heard)
        events: list[Event] = []
        stopped: list[int] = []
        best = top() if work.stream and work.top else [[] for _ in self.heard]
        for step in steps:
            for w, (token, logprob) in enumerate(zip(step.tokens, step.logprobs)):
                if token is not None and w not in stopped:
                    new, is_stopped = self.hear_token(w, token, logprob, best[w])
                    events += new
                    if is_stopped:
                        stopped.append(w)
        return events, stopped

    def hear_token(self, w: int, token: int, logprob: float, best: Top) -> tuple[list[Event], bool]:
        """Return the events of a token of sequence w, and whether the sequence contains a stop string."""
        spoken, sequences = self.heard[w], self.sequences
        self.n_heard[w] += 1
        if self.n_again and self.n_heard[w] <= self.n_again[w]:
            return [], self.n_heard[w] == self.n_again[w] and spoken.is_stopped
        is_stopped, is_eos = spoken.read(token), token == sequences.eos
        if not self.work.stream:
            return [], is_stopped
        events: list[Event] = [Token(self.index, w, token, spoken.new_text(), logprob, best)]
        if is_stopped or is_eos or self.n_heard[w] >= sequences.limit:
            reason: Reason = "stop" if is_stopped else "eos" if is_eos else "length"
            events.append(Ended(self.index, w, reason, spoken.rest()))
        return events, is_stopped

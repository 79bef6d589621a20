"""What an engine is asked to do, and what it reports.

    Translate(texts, n, …)      an Answer per text: its n best translations       as Translator.candidates
    Generate(prompts, n, …)     an Answer per prompt: its n continuations         as Writer.generate
    Apply(verb, items)          an Answer with a row for each item                vectors, classes, scores: shared.py
    Call(function)              an Answer with function(handle)                   any other work

A stream has, before the Answer of a text, a Token for every token and an Ended for every sequence. Work is planned when
it is submitted, in the thread of the client: settings are checked and texts are tokenised there.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import nan
from typing import Any, Literal, Protocol

from clearformer.errors import CheckpointError, ClearformerError, ConfigError, DataError, MachineError
from clearformer.generation.decode import DecodeConfig, Hypothesis
from clearformer.generation.open_policies import Sequences
from clearformer.handles.handle import Handle
from clearformer.handles.translator import Translation, Translator
from clearformer.handles.writer import Continuation, Writer, follow
from clearformer.text import Tokenizer

Top = list[tuple[int, float]]  # tokens and their probabilities
Reason = Literal["eos", "stop", "length"]


class Busy(ClearformerError):
    """The queue is full. `retry_after` is a guess, in seconds, of when it will not be."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message, f"try again in {retry_after:.0f} s")
        self.retry_after = retry_after


class Closing(ClearformerError):
    """The engine accepts no more work, because the server stops."""


class TooLarge(ClearformerError):
    """A text that would need more memory than the engine may use, even alone."""


class NoMemory(MachineError):
    """Memory that work needs could not be allocated."""


class Expired(ClearformerError):
    """The deadline has passed."""


class Unread(ClearformerError):
    """The client does not read the events of its stream."""


class Cancelled(ClearformerError):
    """The client has cancelled the work."""


@dataclass(frozen=True)
class Token:
    """The next token of a sequence: sequence `sequence` of text `index`.

    `text` is the text that it adds: none while a character lacks some of its bytes, or while the text may be the
    beginning of a stop string. `logprob` is log p at temperature 1; `top` has the most probable tokens with their
    probabilities, if the work asks for them. The last token may be EOS.
    """

    index: int
    sequence: int
    id: int
    text: str
    logprob: float
    top: Top = field(default_factory=list)


@dataclass(frozen=True)
class Ended:
    """The end of a sequence; `text` is what its tokens held back."""

    index: int
    sequence: int
    reason: Reason
    text: str


@dataclass(frozen=True)
class Answer:
    """The results of text `index`: translations or continuations, best first; or the single result of other work."""

    index: int
    results: list[Any]


Event = Token | Ended | Answer


@dataclass(frozen=True)
class Plan:
    """One text: what to decode, None if nothing, and how its hypotheses become results.

    `before` are the ids that directly precede the output, `tokenizer` turns both into text.
    """

    sequences: Sequences | None
    finish: Callable[[list[Hypothesis]], list[Any]]
    tokenizer: Tokenizer | None = None
    before: Sequence[int] = ()
    adapter: int = 0

    def with_adapter(self, number: int) -> "Plan":
        if number == 0:
            return self
        return replace(self, sequences=self.sequences and replace(self.sequences, adapter=number), adapter=number)


class Work(Protocol):
    stop: Sequence[str]
    stream: bool
    top: int
    adapter: str | None

    def plan(self, handle: Any) -> list[Plan]: ...


@dataclass(frozen=True)
class Translate:
    """Translate texts. `settings` override [decode]; `first` is the index of the first text, for its samples."""

    texts: Sequence[str]
    n: int = 1
    seed: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    first: int = 0
    stream: bool = False
    top: int = 0  # most probable tokens in every Token of a stream
    adapter: str | None = None
    stop: Sequence[str] = ()

    def plan(self, handle: Handle) -> list[Plan]:
        if not isinstance(handle, Translator):
            raise CheckpointError(f"{handle.name} is {handle.kind}: it cannot translate", "choose a translator")
        decode = handle.resolve(dict(self.settings), self.n)
        refuse_beam(self.stream, decode)
        tokenizer, n, seed = handle.target_tokenizer, self.n, some_seed(self.seed)
        first, eos = handle.start_id, handle.source_tokenizer.eos_id

        def finish(hypotheses: list[Hypothesis]) -> list[Translation]:
            best = hypotheses[:n]
            handle.require_numbers([h.logprob for h in best] or [nan])
            texts = tokenizer.decode([h.tokens for h in best])
            return [Translation(text, h.score, h.logprob, h.tokens) for text, h in zip(texts, best)]

        plans = []
        for i, ids in enumerate(handle.encode_sources(self.texts), start=self.first):
            if not ids:
                plans.append(Plan(None, lambda hypotheses: [Translation("", 0.0, 0.0, [])] * n))
                continue
            is_sampled = decode.temperature > 0
            width = n if is_sampled else decode.beam
            seen: tuple[int, ...] | None = () if is_sampled else None  # beam search has no repetition penalty
            seeded = f"{seed} {i}" if is_sampled else None
            limit = handle.limit(ids, decode)
            row = Sequences([*ids, eos], first, tokenizer.eos_id, limit, decode, width, seeded, seen)
            plans.append(Plan(row, finish, tokenizer))
        return plans


@dataclass(frozen=True)
class Generate:
    """Continue prompts, or answer them with `chat`. A prompt may be given as ids, complete with special tokens."""

    prompts: Sequence[str | Sequence[int]]
    n: int = 1
    stop: Sequence[str] = ()
    seed: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    first: int = 0
    chat: bool = False
    stream: bool = False
    top: int = 0
    adapter: str | None = None

    def plan(self, handle: Any) -> list[Plan]:
        if not hasattr(handle, "writer"):
            raise CheckpointError(f"{handle.name} is {handle.kind}: it cannot generate", "choose a language model")
        writer: Writer = handle.writer(self.chat)
        decode = writer.resolve(dict(self.settings), self.n)
        refuse_beam(self.stream, decode)
        seed = some_seed(self.seed)
        is_beam = decode.temperature == 0 and decode.beam > 1
        plans = []
        for i, ids in enumerate(self.encoded(writer), start=self.first):
            width = decode.beam if is_beam else self.n
            seeded = f"{seed} {i}" if decode.temperature > 0 else None
            seen = None if is_beam else writer.before(ids)
            limit = writer.limit(ids, decode)
            row = Sequences(ids[:-1], ids[-1], writer.tokenizer.eos_id, limit, decode, width, seeded, seen)
            plans.append(Plan(row, self.finish(writer, ids, decode), writer.tokenizer, writer.before(ids)))
        return plans

    def encoded(self, writer: Writer) -> list[list[int]]:
        texts = iter(writer.encode_all([prompt for prompt in self.prompts if isinstance(prompt, str)]))
        rows = [next(texts) if isinstance(prompt, str) else list(prompt) for prompt in self.prompts]
        for ids in rows:
            writer.require_fit(len(ids), str(ids))
            if not ids or not 0 <= min(ids) <= max(ids) < writer.tokenizer.vocab_size:
                size = writer.tokenizer.vocab_size
                raise DataError(f"a prompt of ids needs at least one, from 0 to {size - 1:,}", "or give it as text")
        return rows

    def finish(self, writer: Writer, ids: list[int], decode: DecodeConfig) -> Callable[..., list[Continuation]]:
        def finish(hypotheses: list[Hypothesis]) -> list[Continuation]:
            best = hypotheses[: self.n]
            writer.require_numbers([h.logprob for h in best] or [nan])
            texts = follow(writer.tokenizer, [writer.before(ids)] * len(best), [h.tokens for h in best])
            return [writer.continuation(h, text, ids, self.stop, decode) for h, text in zip(best, texts)]

        return finish


@dataclass(frozen=True)
class Call:
    """Any other function of the handle: it runs in the thread of the engine, between two steps."""

    function: Callable[[Any], Any]
    adapter: str | None = None
    stop: Sequence[str] = ()
    stream: bool = False
    top: int = 0

    def plan(self, handle: Any) -> list[Plan]:
        return [Plan(None, lambda hypotheses: [self.function(handle)])]


def some_seed(seed: int | None) -> int:
    return secrets.randbits(62) if seed is None else seed


def refuse_beam(stream: bool, decode: DecodeConfig) -> None:
    if stream and decode.temperature == 0 and decode.beam > 1:
        raise ConfigError(
            "a beam search cannot be streamed: its first token is known only at its end",
            "set beam to 1, or stream to false",
        )

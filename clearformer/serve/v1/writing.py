"""What completions and chat completions have in common: the settings of a request, and its sequences.

choice number = prompt number · n + sequence number
"""

import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Request
from pydantic import Field, field_validator

from clearformer.errors import ConfigError
from clearformer.handles.writer import Continuation, Writer
from clearformer.serve.asking import Chosen, ask, attended, desk_of, listen, submit
from clearformer.serve.refusals import Refused
from clearformer.serve.schemas import Body, Model, Seed
from clearformer.serve.ticket import Ticket
from clearformer.serve.trace import trace_of
from clearformer.serve.work import Ended, Event, Generate, Token
from clearformer.text import Tokenizer

REASONS = {"eos": "stop", "stop": "stop", "length": "length"}
MOST_STOPS = 16
Stop = Annotated[str, Field(min_length=1, max_length=1000)]


class StreamOptions(Body):
    include_usage: bool = Field(False, description="end the stream with the numbers of tokens")


class Sampling(Body):
    """The settings of a request that generates text. `top_k`, `repetition_penalty` and `beam` are not OpenAI's."""

    model: Model = None
    max_tokens: int | None = Field(None, ge=1, description="maximum length of a sequence, in tokens")
    temperature: float | None = Field(
        None, ge=0, le=100, description="0 takes the most probable token; 1 by default, 0 with a beam"
    )
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=0)
    repetition_penalty: float | None = Field(None, gt=0, le=100)
    beam: int | None = Field(None, ge=1, le=32, description="hypotheses of beam search; cannot be streamed")
    length_penalty: float | None = Field(None, ge=-10, le=10)
    n: int | None = Field(None, ge=1, le=32, description="sequences per prompt; 1 by default")
    stop: Stop | Annotated[list[Stop], Field(max_length=MOST_STOPS)] | None = None
    seed: Seed = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    presence_penalty: float | None = Field(None, description="only 0: see repetition_penalty")
    frequency_penalty: float | None = Field(None, description="only 0: see repetition_penalty")
    logit_bias: dict[str, float] | None = Field(None, description="only empty")
    user: str | None = Field(None, max_length=1000, description="ignored")

    @field_validator("presence_penalty", "frequency_penalty", "logit_bias")
    @classmethod
    def refuse(cls, value: Any) -> Any:
        if value:
            raise ValueError("this is not supported; `repetition_penalty` is")
        return value

    @property
    def n_sequences(self) -> int:
        return self.n or 1

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or [])

    @property
    def has_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def settings(self, max_new: int) -> dict[str, Any]:
        is_beam = (self.beam or 1) > 1
        if is_beam and self.temperature:
            raise ConfigError("a beam search has no temperature", "omit `beam` or `temperature`")
        temperature = self.temperature if self.temperature is not None else 0.0 if is_beam else 1.0
        names = ("top_p", "top_k", "repetition_penalty", "beam", "length_penalty")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        return {"max_new": max_new, "temperature": temperature, **given}


@dataclass
class Spelled:
    """A token of an answer with its log-probability, and the most probable tokens in its place."""

    token: str
    text: str
    logprob: float
    top: list[tuple[str, float]]


@dataclass
class Choice:
    """One sequence: its text, why it ended, and its tokens if they are asked for."""

    text: str
    reason: str
    tokens: list[Spelled] = field(default_factory=list)


@dataclass
class Job:
    """Prompts as ids, with the writer of a model and the settings of a request."""

    request: Request
    chosen: Chosen
    writer: Writer
    prompts: list[list[int]]
    body: Sampling
    max_new: int
    top: int | None
    """Most probable tokens per token of an answer; None if no tokens are asked for."""

    def work(self, is_streamed: bool) -> Generate:
        body = self.body
        settings = body.settings(self.max_new)
        if is_streamed and (body.beam or 1) > 1:
            wish = "a stream" if body.stream else "log-probabilities"
            raise ConfigError(f"{wish} cannot come from a beam search", "omit `beam`, or omit the other")
        return Generate(
            self.prompts, body.n_sequences, body.stops, body.seed, settings, stream=is_streamed, top=self.top or 0
        )

    def usage(self, ticket: Ticket) -> dict[str, int]:
        n_prompt = sum(map(len, self.prompts))
        return {
            "prompt_tokens": n_prompt,
            "completion_tokens": ticket.n_generated,
            "total_tokens": n_prompt + ticket.n_generated,
        }

    async def answer(self) -> tuple[list[Choice], dict[str, int]]:
        """Return all sequences, in order, and the numbers of tokens."""
        if self.top is None:
            results, ticket = await ask(self.request, self.chosen, self.work(False))
            continuations: list[Continuation] = [one for some in results for one in some]
            return [Choice(one.text, REASONS[one.ended]) for one in continuations], self.usage(ticket)
        ticket = await submit(self.request, self.chosen, self.work(True))
        choices = [Choice("", "length") for _ in range(len(self.prompts) * self.body.n_sequences)]
        async with attended(self.request, ticket):
            async for event in ticket:
                if isinstance(event, Token | Ended):
                    self.add(event, choices[self.number(event)])
        return choices, self.usage(ticket)

    def add(self, event: Token | Ended, choice: Choice) -> None:
        choice.text += event.text
        if isinstance(event, Ended):
            choice.reason = REASONS[event.reason]
        elif event.id != self.writer.tokenizer.eos_id:
            choice.tokens.append(self.spell(event))

    async def submit(self) -> Ticket:
        return await submit(self.request, self.chosen, self.work(True))

    async def events(self, ticket: Ticket) -> AsyncIterator[Event]:
        async for event in listen(self.request, ticket):
            yield event

    def number(self, event: Token | Ended) -> int:
        return event.index * self.body.n_sequences + event.sequence

    def spell(self, token: Token) -> Spelled:
        tokenizer: Tokenizer = self.writer.tokenizer
        names = tokenizer.pieces([token.id, *(id for id, _ in token.top)])
        top = [(name, value) for name, (_, value) in zip(names[1:], token.top)]
        return Spelled(names[0], token.text, token.logprob, top[: self.top])


def choose_length(request: Request, given: int | None, default: int) -> int:
    """Return the maximum number of tokens to generate. More than the server allows is an error."""
    most = desk_of(request).limits.tokens
    if given is not None and given > most:
        raise Refused(422, f"max_tokens is {given:,}, but this server allows {most:,}", "ask for fewer", "too_long")
    return given or min(default, most)


def note_texts(request: Request, texts: Sequence[Any]) -> None:
    trace_of(request).texts = list(texts)


def now() -> int:
    return int(time.time())

"""POST /v1/completions, in the shape of OpenAI's API: continue prompts, whole or as a stream."""

import math
import secrets
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field, field_validator

from clearformer.errors import DataError
from clearformer.handles.writer import Writer
from clearformer.serve.answers import JSONText
from clearformer.serve.asking import open_for
from clearformer.serve.limits import MOST_CHARS, MOST_TEXTS
from clearformer.serve.schemas import Text, example, streams
from clearformer.serve.streams import data, streamed
from clearformer.serve.ticket import Ticket
from clearformer.serve.v1.writing import (
    REASONS,
    Choice,
    Job,
    Sampling,
    Spelled,
    choose_length,
    note_texts,
    now,
)
from clearformer.serve.work import Ended, Token

DEFAULT_TOKENS = 16  # as OpenAI's API
Ids = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1, max_length=MOST_CHARS)]
EXAMPLE = 'data: {"id":"cmpl-1","object":"text_completion","choices":[{"index":0,"text":" be"}]}\n\ndata: [DONE]\n\n'
router = APIRouter()


class CompletionRequest(Sampling):
    """A request to continue prompts: texts, or their token ids."""

    model_config = example(model="en-fr-small", prompt="I am a good boy.", max_tokens=32)

    prompt: (
        Text
        | Annotated[list[Text], Field(min_length=1, max_length=MOST_TEXTS)]
        | Ids
        | Annotated[list[Ids], Field(min_length=1, max_length=MOST_TEXTS)]
    )
    logprobs: int | None = Field(None, ge=0, le=20, description="most probable tokens per token")
    echo: bool | None = Field(None, description="begin each text with its prompt")
    best_of: int | None = Field(None, description="only 1 or `n`")
    suffix: str | None = Field(None, description="only empty")

    @field_validator("suffix")
    @classmethod
    def refuse_suffix(cls, value: str | None) -> str | None:
        if value:
            raise ValueError("this is not supported; `/v1/fill` fills blanks")
        return value

    @property
    def prompts(self) -> list[str | list[int]]:
        if isinstance(self.prompt, str) or isinstance(self.prompt[0], int):
            return [self.prompt]
        return list(self.prompt)


class Logprobs(BaseModel):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float | None]] | None
    text_offset: list[int]


class CompletionChoice(BaseModel):
    index: int
    text: str
    logprobs: Logprobs | None
    finish_reason: Literal["stop", "length"] | None


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionAnswer(BaseModel):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None


@router.post(
    "/v1/completions",
    response_model=CompletionAnswer,
    responses=streams("Continuations; with `stream`, events.", EXAMPLE),
)
async def complete(request: Request, body: CompletionRequest) -> Response:
    """Continue prompts. An encoder–decoder, such as a translator, answers them."""
    name, chosen = await open_for(request, "generate", body.model)
    if body.best_of not in (None, 1, body.n_sequences):
        raise DataError("`best_of` is not supported", "omit it, or set `beam`")
    writer: Writer = chosen.handle.writer()
    note_texts(request, body.prompts)
    prompts = [encode(writer, prompt) for prompt in body.prompts]
    max_new = choose_length(request, body.max_tokens, DEFAULT_TOKENS)
    job = Job(request, chosen, writer, prompts, body, max_new, body.logprobs)
    base = {"id": f"cmpl-{secrets.token_hex(12)}", "object": "text_completion", "created": now(), "model": name}
    echoes = [prompt if body.echo and isinstance(prompt, str) else "" for prompt in body.prompts]
    if body.stream:
        ticket = await job.submit()
        return streamed(request, stream(job, ticket, base, echoes))
    choices, usage = await job.answer()
    rows = [as_choice(i, choice, echoes[i // body.n_sequences], body.logprobs) for i, choice in enumerate(choices)]
    return JSONText({**base, "choices": rows, "usage": usage})


def encode(writer: Writer, prompt: str | list[int]) -> list[int]:
    """Return the ids of a prompt. Ids that are given must be in the vocabulary."""
    if isinstance(prompt, str):
        return writer.encode(prompt)
    size = writer.tokenizer.vocab_size
    if (largest := max(prompt)) >= size:
        raise DataError(f"the prompt has token {largest:,}, but the vocabulary has {size:,}", "send the text instead")
    return prompt


def as_choice(index: int, choice: Choice, echo: str, n_top: int | None) -> dict[str, Any]:
    logprobs = None if n_top is None else as_logprobs(choice.tokens, n_top, len(echo))
    return {"index": index, "text": echo + choice.text, "logprobs": logprobs, "finish_reason": choice.reason}


def as_logprobs(tokens: list[Spelled], n_top: int, offset: int) -> dict[str, Any]:
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token.text)
    tops = [{name: log(value) for name, value in token.top} for token in tokens] if n_top else None
    names, values = [token.token for token in tokens], [token.logprob for token in tokens]
    return {"tokens": names, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets}


def log(probability: float) -> float | None:
    return math.log(probability) if probability > 0 else None


async def stream(job: Job, ticket: Ticket, base: dict[str, Any], echoes: list[str]) -> AsyncIterator[str]:
    """Yield a chunk per token with text, one per end of a sequence, and one with the usage, if it is asked for."""
    offsets = [len(echo) for echo in echoes for _ in range(job.body.n_sequences)]
    usage = {"usage": None} if job.body.has_usage else {}

    def chunk(number: int, text: str, tokens: list[Spelled], reason: str | None) -> str:
        logprobs = as_logprobs(tokens, job.top or 0, offsets[number]) if job.top is not None else None
        offsets[number] += len(text)
        choice = {"index": number, "text": text, "logprobs": logprobs, "finish_reason": reason}
        return data({**base, "choices": [choice], **usage})

    for number, echo in enumerate(echo for echo in echoes for _ in range(job.body.n_sequences)):
        if echo:
            choice = {"index": number, "text": echo, "logprobs": None, "finish_reason": None}
            yield data({**base, "choices": [choice], **usage})
    async for event in job.events(ticket):
        if isinstance(event, Token) and event.id != job.writer.tokenizer.eos_id and (event.text or job.top is not None):
            yield chunk(job.number(event), event.text, [job.spell(event)], None)
        elif isinstance(event, Ended):
            yield chunk(job.number(event), event.text, [], REASONS[event.reason])
    if job.body.has_usage:
        yield data({**base, "choices": [], "usage": job.usage(ticket)})

"""POST /v1/chat/completions, in the shape of OpenAI's API: answer a conversation, by a model with a chat template."""

import math
import secrets
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from clearformer.errors import CheckpointError
from clearformer.handles.chat import Chat
from clearformer.handles.language_model import LanguageModel
from clearformer.serve.answers import JSONText
from clearformer.serve.asking import open_for
from clearformer.serve.limits import MOST_TEXTS
from clearformer.serve.schemas import Body, Text, example, streams
from clearformer.serve.streams import data, streamed
from clearformer.serve.ticket import Ticket
from clearformer.serve.v1.completions import Usage
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

DEFAULT_TOKENS = 1024
EXAMPLE = (
    'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
    "data: [DONE]\n\n"
)
router = APIRouter()


class Part(Body):
    type: Literal["text"]
    text: Text


class Message(Body):
    role: Literal["system", "developer", "user", "assistant"]
    content: Text | Annotated[list[Part], Field(max_length=MOST_TEXTS)]
    name: str | None = Field(None, max_length=1000, description="ignored")

    @property
    def turn(self) -> dict[str, str]:
        """The message as templates know it."""
        role = "system" if self.role == "developer" else self.role
        content = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": role, "content": content}


class ResponseFormat(Body):
    type: Literal["text"]


class ChatRequest(Sampling):
    """A request to answer a conversation."""

    model_config = example(model="smollm2", messages=[{"role": "user", "content": "What is gravity?"}])

    messages: Annotated[list[Message], Field(min_length=1, max_length=MOST_TEXTS)]
    max_completion_tokens: int | None = Field(None, ge=1, description="the present name of `max_tokens`")
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    response_format: ResponseFormat | None = None


class TokenLogprob(BaseModel):
    token: str
    logprob: float | None
    bytes: list[int] | None


class ChoiceLogprob(TokenLogprob):
    top_logprobs: list[TokenLogprob]


class ChoiceLogprobs(BaseModel):
    content: list[ChoiceLogprob] | None


class Reply(BaseModel):
    role: Literal["assistant"]
    content: str


class ChatChoice(BaseModel):
    index: int
    message: Reply
    logprobs: ChoiceLogprobs | None
    finish_reason: Literal["stop", "length"]


class ChatAnswer(BaseModel):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


@router.post(
    "/v1/chat/completions", response_model=ChatAnswer, responses=streams("Answers; with `stream`, events.", EXAMPLE)
)
async def chat(request: Request, body: ChatRequest) -> Response:
    """Answer a conversation."""
    name, chosen = await open_for(request, "generate", body.model)
    handle = chosen.handle
    if not isinstance(handle, LanguageModel) or handle.template is None:
        hint = "use /v1/completions, or a model fine-tuned for conversations"
        raise CheckpointError(f"{name} is {handle.kind} without a chat template", hint)
    turns = [message.turn for message in body.messages]
    note_texts(request, turns)
    writer = Chat(handle, handle.template)
    prompts = [writer.encode_messages(turns)]
    length = body.max_completion_tokens or body.max_tokens
    top = (body.top_logprobs or 0) if body.logprobs else None
    job = Job(request, chosen, writer, prompts, body, choose_length(request, length, DEFAULT_TOKENS), top)
    base = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": now(), "model": name}
    if body.stream:
        ticket = await job.submit()
        return streamed(request, stream(job, ticket, {**base, "object": "chat.completion.chunk"}))
    choices, usage = await job.answer()
    rows = [as_choice(i, choice, top is not None) for i, choice in enumerate(choices)]
    return JSONText({**base, "object": "chat.completion", "choices": rows, "usage": usage})


def as_choice(index: int, choice: Choice, has_logprobs: bool) -> dict[str, Any]:
    logprobs = {"content": [as_logprob(token) for token in choice.tokens]} if has_logprobs else None
    message = {"role": "assistant", "content": choice.text}
    return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": choice.reason}


def as_logprob(token: Spelled) -> dict[str, Any]:
    top = [one(name, math.log(value) if value > 0 else None) for name, value in token.top]
    return {**one(token.token, token.logprob, token.text), "top_logprobs": top}


def one(token: str, logprob: float | None, text: str | None = None) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": None if text is None else list(text.encode())}


async def stream(job: Job, ticket: Ticket, base: dict[str, Any]) -> AsyncIterator[str]:
    """Yield a chunk that opens each answer, one per token with text, one per end, and one with the usage, if asked."""
    usage = {"usage": None} if job.body.has_usage else {}

    def chunk(number: int, delta: dict[str, str], tokens: list[Spelled], reason: str | None = None) -> str:
        logprobs = {"content": [as_logprob(token) for token in tokens]} if job.top is not None else None
        choice = {"index": number, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return data({**base, "choices": [choice], **usage})

    for number in range(job.body.n_sequences):
        yield chunk(number, {"role": "assistant", "content": ""}, [])
    async for event in job.events(ticket):
        if isinstance(event, Token) and event.id != job.writer.tokenizer.eos_id and (event.text or job.top is not None):
            yield chunk(job.number(event), {"content": event.text}, [job.spell(event)])
        elif isinstance(event, Ended):
            delta = {"content": event.text} if event.text else {}
            yield chunk(job.number(event), delta, [], REASONS[event.reason])
    if job.body.has_usage:
        yield data({**base, "choices": [], "usage": job.usage(ticket)})

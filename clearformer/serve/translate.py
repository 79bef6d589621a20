"""POST /v1/translate: translations as `clearformer translate --json` prints them, or token by token as events.

    token    {"token": "▁cat", "text": " cat", "probability": 0.93, "alternatives": [{"token": …, "probability": …}, …]}
    end      {"translation": "…", "logprob": −1.2}
    [DONE]

A stream is a greedy search or a sample, since a beam search knows its first token only at its end.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field
from torch import Tensor

from clearformer.errors import ConfigError
from clearformer.generation.decode import sample_steps, widen
from clearformer.handles.handle import Handle
from clearformer.handles.translator import Translation, Translator
from clearformer.serve.answers import JSONText, error_of, event
from clearformer.serve.asking import Chosen, apply, ask, cannot, desk_of, listen, open_for, submit
from clearformer.serve.schemas import Body, Model, Seed, Texts, as_list, example, streams
from clearformer.serve.shared import Item, Verb
from clearformer.serve.store import Opened
from clearformer.serve.streams import streamed
from clearformer.serve.ticket import Ticket
from clearformer.serve.trace import trace_of
from clearformer.serve.work import Answer, Token, Translate
from clearformer.text import Tokenizer
from clearformer.verbs.translate import as_row

EXAMPLE = (
    'event: token\ndata: {"token":"▁Où","text":"Où","probability":0.97,"alternatives":[]}\n\n…\n\ndata: [DONE]\n\n'
)
Off = Annotated[list[str], Field(max_length=1000, description="heads to switch off: LAYER[HEADS]")]
router = APIRouter()


class TranslateRequest(Body):
    """A request to translate. Fields that are not given have the values in [decode] of the model."""

    model_config = example(model="en-fr-small", text=["Where is the station?"], beam=4, n=2)

    text: Texts
    model: Model = None
    n: int = Field(1, ge=1, le=32, description="translations per text, best first; with a temperature, samples")
    beam: int | None = Field(None, ge=1, le=32)
    length_penalty: float | None = Field(None, ge=-10, le=10)
    temperature: float | None = Field(None, ge=0, le=100)
    top_k: int | None = Field(None, ge=0)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: Seed = None
    align: bool = Field(False, description="with the tokens, and pairs of source and target token numbers")
    off: Off = Field(default_factory=list)
    stream: bool = False
    alternatives: int = Field(5, ge=0, le=50, description="most probable tokens in each event of a stream")

    @property
    def settings(self) -> dict[str, Any]:
        names = ("beam", "length_penalty", "temperature", "top_k", "top_p")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class Row(BaseModel):
    source: str
    translation: str
    score: float = Field(description="the log-probability with the length penalty, by which translations are ranked")
    logprob: float
    source_tokens: list[str] | None = None
    target_tokens: list[str] | None = None
    links: list[tuple[int, int]] | None = Field(None, description="[source token, target token]")


class Translations(BaseModel):
    translations: list[Row]


@router.post(
    "/v1/translate",
    response_model=Translations,
    responses=streams("Translations, best first; with `stream`, events.", EXAMPLE),
)
async def translate(request: Request, body: TranslateRequest) -> Response:
    """Translate texts."""
    name, chosen = await open_for(request, "translate", body.model)
    texts = trace_of(request).texts = as_list(body.text)
    n_chars = sum(map(len, texts))
    if body.stream:
        refuse_stream(body)
        steps: Any
        if body.off:
            opened = await asyncio.to_thread(desk_of(request).store.open, name)
            steps = patched_events(opened, texts[0], body.off, body.alternatives)
        else:
            settings = {**body.settings, "beam": 1}
            work = Translate(texts, 1, body.seed, settings, stream=True, top=body.alternatives)
            steps = events(request, chosen, await submit(request, chosen, work, n_chars))
        return streamed(request, steps, lambda error: event("error", error_of(error)["error"]))
    if body.off:
        opened = await asyncio.to_thread(desk_of(request).store.open, name)
        candidates = await asyncio.to_thread(patched, opened, texts, body)
    else:
        candidates, _ = await ask(request, chosen, Translate(texts, body.n, body.seed, body.settings), n_chars)
    pairs = [(text, one) for text, some in zip(texts, candidates) for one in some]
    rows = await apply(request, chosen, Align(), pairs) if body.align else as_rows(pairs)
    return JSONText({"translations": rows})


def refuse_stream(body: TranslateRequest) -> None:
    if not isinstance(body.text, str):
        raise ConfigError("a stream has one text", "send `text` as a string, or omit `stream`")
    if body.beam not in (None, 1) or body.n > 1 or body.align:
        raise ConfigError(
            "a stream is a greedy search or a sample: it has no beam, one translation and no alignment",
            "omit `stream`, or omit `beam`, `n` and `align`",
        )


def as_rows(pairs: list[tuple[str, Translation]]) -> list[dict[str, Any]]:
    return [as_row(text, one) for text, one in pairs]


@dataclass(frozen=True)
class Align(Verb):
    """The rows of pairs of texts and translations, with their alignments."""

    def prepare(self, handle: Any, pairs: Sequence[tuple[str, Translation]]) -> list[Item]:
        return [Item(pair, 2 * len(pair[1].tokens)) for pair in pairs]  # a source is about as long

    def compute(self, handle: Any, pairs: list[tuple[str, Translation]]) -> list[dict[str, Any]]:
        return [as_row(text, one, handle.align(text, one.text)) for text, one in pairs]


async def events(request: Request, chosen: Chosen, ticket: Ticket) -> AsyncIterator[str]:
    """Yield the events of a translation."""
    tokenizer: Tokenizer = as_translator(chosen.handle).target_tokenizer
    async for one in listen(request, ticket):
        if isinstance(one, Token):
            yield event("token", describe(tokenizer, one.id, one.text, math.exp(one.logprob), one.top))
        elif isinstance(one, Answer):
            best: Translation = one.results[0]
            yield event("end", {"translation": best.text, "logprob": best.logprob})


def describe(
    tokenizer: Tokenizer, id: int, text: str, probability: float, alternatives: list[tuple[int, float]]
) -> dict[str, Any]:
    """Describe a token with the most probable tokens in its place."""
    names = tokenizer.pieces([id, *(token for token, _ in alternatives)])
    some = [{"token": name, "probability": value} for name, (_, value) in zip(names[1:], alternatives)]
    is_end = id == tokenizer.eos_id
    chosen, new_text = ("<eos>", "") if is_end else (names[0], text)
    return {"token": chosen, "text": new_text, "probability": probability, "alternatives": some}


# With heads switched off, the model is changed while it works: no other work may share its steps.


def patched(opened: Opened, texts: list[str], body: TranslateRequest) -> list[list[Translation]]:
    with opened.use(body.off) as handle:
        return as_translator(handle).candidates(texts, body.n, seed=body.seed, **body.settings)


def patched_events(opened: Opened, text: str, off: list[str], n: int) -> Iterator[str]:
    """Yield the events of a greedy search with heads switched off."""
    for name, data in greedy_steps(opened, text, off, n):
        yield event(name, data)


def greedy_steps(opened: Opened, text: str, off: list[str], n: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each token of a greedy search with its probability and the n most probable tokens, then the translation.

    The model is changed for one step at a time, so that other requests are answered in between.
    """
    translator = as_translator(opened.handle)
    tokenizer = translator.target_tokenizer
    best: list[tuple[Tensor, Tensor]] = []

    def choose(logits: Tensor, rows: Tensor) -> Tensor:
        probabilities = widen(logits[0, 0]).softmax(-1)
        values, ids = probabilities.topk(min(max(n, 1), len(probabilities)))
        best.append((values, ids))
        return ids[:1][None]

    ids = translator.encode_sources([text])[0]
    source = torch.tensor([[*ids, translator.source_tokenizer.eos_id]], device=translator.device)
    first = torch.tensor([translator.start_id], device=translator.device)
    limits = torch.tensor([translator.limit(ids, translator.decode)], device=translator.device)
    with opened.use(off), torch.inference_mode():
        state = translator.model.start(source, None)
    steps = sample_steps(translator.model, state, first, tokenizer.eos_id, limits, choose)
    spoken, result = tokenizer.stream(), None
    while ids and result is None:
        with opened.use(off), torch.inference_mode():
            try:
                next(steps)
            except StopIteration as end:
                result = end.value[0][0]
                continue
        values, tokens = (tensor.tolist() for tensor in best.pop())
        new_text = "" if tokens[0] == tokenizer.eos_id else spoken.step(tokens[0]) or ""
        yield "token", describe(tokenizer, tokens[0], new_text, values[0], list(zip(tokens, values))[:n])
    translation = "" if result is None else tokenizer.decode([result.tokens])[0]
    yield "end", {"translation": translation, "logprob": 0.0 if result is None else result.logprob}


def as_translator(handle: Handle) -> Translator:
    if not isinstance(handle, Translator):
        raise cannot(handle, handle.name, "translate")
    return handle

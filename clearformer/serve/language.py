"""What a language model thinks of a text.

    POST /api/next        the distribution that the next token is drawn from, and the token that a seed draws
    POST /api/surprise    the probability of each token of a text, and the most probable tokens in its place
    POST /api/fill        words for a blank, as `clearformer fill --json`
    POST /api/score       texts by their probability, as `clearformer score --json`

`tokens` are ids that follow the text, as they were chosen one by one: a text that is encoded again may have other ids.
"""

from typing import Annotated, Any

import torch
from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from clearformer.data.batch import TextBatch
from clearformer.errors import CheckpointError, DataError
from clearformer.generation.decode import NEVER, widen
from clearformer.generation.sampling import draw_token, draws, generators, repetition, shaped
from clearformer.handles import gaps
from clearformer.handles.handle import Handle
from clearformer.handles.language_model import LanguageModel
from clearformer.handles.writer import follow
from clearformer.metric import perplexity
from clearformer.serve.answers import JSONText
from clearformer.serve.schemas import Text
from clearformer.serve.store import Opened
from clearformer.serve.translate import Off
from clearformer.verbs.fill import as_row as as_word
from clearformer.verbs.load import require_verb, uses
from clearformer.verbs.score import as_row as as_score

MOST_TOKENS = 4096
ROWS = 128  # positions whose logits are computed at once: a large vocabulary makes the logits of a long text large
Tokens = Annotated[list[int], Field(max_length=MOST_TOKENS, description="ids that follow the text")]
router = APIRouter(prefix="/api")


class Next(BaseModel):
    """A request for the next token. `seed` draws as `clearformer generate --seed` does, one number per token."""

    model_config = ConfigDict(extra="forbid")

    text: Text = ""
    tokens: Tokens = []
    model: str | None = None
    temperature: float = Field(1.0, ge=0, le=100)
    top_k: int = Field(0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    seed: int = 0
    top: int = Field(20, ge=1, le=1000, description="tokens in the answer, the most probable ones")
    off: Off = []


class Surprise(BaseModel):
    """A request for the probability of each token of a text."""

    model_config = ConfigDict(extra="forbid")

    text: Text = ""
    tokens: Tokens = []
    model: str | None = None
    top: int = Field(5, ge=1, le=50, description="most probable tokens in the place of each token")
    off: Off = []


class Fill(BaseModel):
    """A request for words in the place of the blank ___."""

    model_config = ConfigDict(extra="forbid")

    text: Text
    candidates: Annotated[list[Text], Field(min_length=1, max_length=1000)] | None = None
    n: int = Field(5, ge=1, le=1000)
    model: str | None = None
    off: Off = []


class Score(BaseModel):
    """A request to rank texts by their probability. Only a translator takes `source`."""

    model_config = ConfigDict(extra="forbid")

    texts: Annotated[list[Text], Field(min_length=1, max_length=256)]
    source: Text | None = None
    closed: bool | None = None
    model: str | None = None
    off: Off = []


@router.post("/next")
def next_token(request: Request, body: Next) -> Response:
    opened: Opened = request.app.state.store.open(body.model)
    with opened.use(body.off) as handle, torch.inference_mode():
        return JSONText(next_tokens(as_language_model(handle), body))


def next_tokens(model: LanguageModel, body: Next) -> dict[str, Any]:
    """Return what `sampler` draws from after the text and its tokens, and what it draws by the seed.

    `probability` is softmax(shaped logits); `unshaped` is the probability at temperature 1, without top-k and top-p.
    """
    tokenizer = model.tokenizer
    check_ids(model, body.tokens)
    prompt = model.encode(body.text)
    model.require_fit(len(prompt) + len(body.tokens), body.text)
    logits = last_logits(model, prompt, body.tokens)
    unshaped = widen(logits).softmax(-1)
    logits = adjusted(model, logits, prompt, body.tokens)
    drawn = draws(generators(body.seed, [0])[0], len(body.tokens) + 1)[-1]
    if body.temperature == 0:  # greedy search
        token = int(logits.argmax())
        probabilities = torch.zeros_like(unshaped).index_fill_(0, torch.tensor(token, device=logits.device), 1.0)
    else:
        settings = body.temperature, body.top_k, body.top_p
        token = int(draw_token(logits, torch.tensor(drawn, device=logits.device), *settings))
        probabilities = shaped(logits, *settings).softmax(-1)
    best = logits.topk(min(body.top, len(logits))).indices.tolist()
    rows = [
        {"id": i, "token": name, "probability": float(probabilities[i]), "unshaped": float(unshaped[i])}
        for i, name in zip(best, tokenizer.pieces(best))
    ]
    positive = probabilities[probabilities > 0]
    return {
        "prompt": prompt,
        "tokens": [{"id": i, "token": name} for i, name in zip(body.tokens, tokenizer.pieces(body.tokens))],
        "text": follow(tokenizer, [model.before(prompt)], [body.tokens])[0],
        "next": rows,
        "drawn": {"id": token, "token": tokenizer.pieces([token])[0], "uniform": drawn},
        "candidates": int((probabilities > 0).sum()),
        "vocabulary": len(logits),
        "entropy": float(-(positive * positive.log()).sum()),
        "end": tokenizer.eos_id,
        "room": int(model.model.config.max_length) - len(prompt) - len(body.tokens) + 1,
    }


def last_logits(model: LanguageModel, prompt: list[int], tokens: list[int]) -> Tensor:
    """Return the logits (V,) after a prompt and the tokens that follow it, by the step protocol of generation.

    A prefix LM reads its prompt in both directions and what follows token by token. All others read both in one pass.
    """
    is_full = getattr(model.model.config, "prompt", "causal") == "full"
    read, rest = (prompt, tokens) if is_full else ([*prompt, *tokens], [])
    state = model.model.start(torch.tensor([read[:-1]], dtype=torch.long, device=model.device), None)
    logits = None
    for token in [read[-1], *rest]:
        logits, state = model.model.step(torch.tensor([[token]], device=model.device), state)
    assert logits is not None
    result: Tensor = logits[0, 0]
    return result


def adjusted(model: LanguageModel, logits: Tensor, prompt: list[int], tokens: list[int]) -> Tensor:
    """Apply what [decode] of the model sets for every text: its repetition penalty and its minimum length."""
    if (adjust := repetition(model.decode.repetition_penalty, [prompt])) is not None:
        rows = torch.zeros(1, dtype=torch.long, device=logits.device)
        generated = torch.tensor(tokens, dtype=torch.long, device=logits.device)[None, None]
        logits = adjust(logits[None, None], rows, generated)[0, 0]
    if len(tokens) < model.decode.min_length:
        logits = logits.index_fill(0, torch.tensor(model.tokenizer.eos_id, device=logits.device), NEVER)
    return logits


@router.post("/surprise")
def surprise(request: Request, body: Surprise) -> Response:
    opened: Opened = request.app.state.store.open(body.model)
    with opened.use(body.off) as handle, torch.inference_mode():
        return JSONText(surprises(as_language_model(handle), body))


def surprises(model: LanguageModel, body: Surprise) -> dict[str, Any]:
    """Return log p of each token given the tokens before it. Their sum is `score` of the text, without its end."""
    tokenizer = model.tokenizer
    check_ids(model, body.tokens)
    opening = model.opening or [tokenizer.bos_id]
    ids = [*opening, *tokenizer.encode([body.text])[0], *body.tokens]
    model.require_fit(len(ids) - 1, body.text)
    rows: list[dict[str, Any]] = []
    if len(ids) > len(opening):
        tokens = torch.tensor([ids[:-1]], device=model.device)
        hidden = model.model.hidden(TextBatch(tokens, tokens, n_tokens=len(ids) - 1))[
            :, len(opening) - 1 :
        ]  # (1, T, D)
        for first in range(0, hidden.size(1), ROWS):
            logprobs = widen(model.model.head(hidden[:, first : first + ROWS]))[0].log_softmax(-1)  # (T, V)
            begin = len(opening) + first
            rows += [as_token(tokenizer, one, i, body.top) for one, i in zip(logprobs, ids[begin : begin + ROWS])]
    total = sum(row["logprob"] for row in rows)
    return {"tokens": rows, "logprob": total, "perplexity": perplexity(-total / max(1, len(rows)))}


def as_token(tokenizer: Any, logprobs: Tensor, token: int, top: int) -> dict[str, Any]:
    best = logprobs.topk(min(top, len(logprobs)))
    names = tokenizer.pieces([token, *best.indices.tolist()])
    return {
        "id": token,
        "token": names[0],
        "logprob": float(logprobs[token]),
        "probability": float(logprobs[token].exp()),
        "rank": 1 + int((logprobs > logprobs[token]).sum()),
        "alternatives": [
            {"token": name, "probability": value} for name, value in zip(names[1:], best.values.exp().tolist())
        ],
    }


@router.post("/fill")
def fill(request: Request, body: Fill) -> Response:
    opened: Opened = request.app.state.store.open(body.model)
    with opened.use(body.off) as handle:
        require_verb("fill", handle, handle.name)
        model: Any = handle
        return JSONText({"words": [as_word(row) for row in gaps.fill(model, body.text, body.n, body.candidates)]})


@router.post("/score")
def score(request: Request, body: Score) -> Response:
    opened: Opened = request.app.state.store.open(body.model)
    with opened.use(body.off) as handle:
        require_verb("score", handle, handle.name)
        ranker: Any = handle
        rows = ranker.rank(body.texts, body.source, body.closed)
    return JSONText({"scores": [as_score(row) for row in rows]})


def as_language_model(handle: Handle) -> LanguageModel:
    if not isinstance(handle, LanguageModel):
        raise CheckpointError(f"{handle.name} is {handle.kind}, not {LanguageModel.kind}", uses(handle))
    return handle


def check_ids(model: LanguageModel, tokens: list[int]) -> None:
    """Raise DataError for an id that is not in the vocabulary, which an embedding could not look up."""
    size = model.tokenizer.vocab_size
    if unknown := [i for i in tokens if not 0 <= i < size]:
        raise DataError(f"the vocabulary of {model.name} has no token {unknown[0]}", f"give ids from 0 to {size - 1}")

"""POST /v1/score: texts ranked by their probability, as `clearformer score --json` prints them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from clearformer.handles import scorer as handles
from clearformer.handles.masked_model import MaskedModel
from clearformer.handles.scorer import most_probable_first
from clearformer.serve.answers import JSONText
from clearformer.serve.asking import apply, open_for
from clearformer.serve.schemas import Body, Model, Text, Texts, as_list, example
from clearformer.serve.shared import Item, Verb, text_sizes
from clearformer.serve.trace import trace_of
from clearformer.text import Tokenizer
from clearformer.verbs.score import as_row

router = APIRouter()


class ScoreRequest(Body):
    """A request to rank texts. A translator ranks them as translations of `source`."""

    model_config = example(model="en-fr-small", source="A dog.", text=["Un chien.", "Une chatte."])

    text: Texts
    source: Text | None = None
    closed: bool | None = Field(None, description="count the end-of-text token; as in training by default")
    model: Model = None


class ScoredText(BaseModel):
    text: str
    logprob: float | None
    tokens: int
    perplexity: float | None


class Scores(BaseModel):
    scores: list[ScoredText]


@dataclass(frozen=True)
class Score(Verb):
    """The score of each text, or of each text as a translation of its source."""

    has_source: bool
    closed: bool | None

    def prepare(self, handle: Any, pairs: Sequence[tuple[str, str | None]]) -> list[Item]:
        tokenizer: Tokenizer = getattr(handle, "target_tokenizer", None) or handle.tokenizer
        sizes = text_sizes(handle, tokenizer, [f"{text} {source or ''}" for text, source in pairs])
        is_masked = isinstance(handle, MaskedModel)  # which reads a text once for each of its tokens
        return [Item(pair, n * n if is_masked else n) for pair, n in zip(pairs, sizes)]

    def compute(self, handle: Any, pairs: list[tuple[str, str | None]]) -> list[handles.Score]:
        texts, sources = [text for text, _ in pairs], [source for _, source in pairs]
        scores: list[handles.Score] = handle.score_each(texts, sources if self.has_source else None, self.closed)
        return scores


@router.post("/v1/score", response_model=Scores)
async def score(request: Request, body: ScoreRequest) -> Response:
    """Rank texts, the most probable first."""
    _, chosen = await open_for(request, "score", body.model)
    texts = trace_of(request).texts = as_list(body.text)

    pairs = [(text, body.source) for text in texts]
    n_chars = sum(map(len, texts)) + len(body.source or "")
    scores = await apply(request, chosen, Score(body.source is not None, body.closed), pairs, n_chars)
    return JSONText({"scores": [as_row(one) for one in most_probable_first(scores)]})

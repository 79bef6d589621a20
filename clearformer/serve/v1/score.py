"""POST /v1/score: texts ranked by their probability, as `clearformer score --json` prints them."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from clearformer.serve.answers import JSONText
from clearformer.serve.asking import call, open_for
from clearformer.serve.schemas import Body, Model, Text, Texts, as_list, example
from clearformer.serve.trace import trace_of
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


@router.post("/v1/score", response_model=Scores)
async def score(request: Request, body: ScoreRequest) -> Response:
    """Rank texts, the most probable first."""
    _, chosen = await open_for(request, "score", body.model)
    texts = trace_of(request).texts = as_list(body.text)

    def compute(handle: Any) -> list[dict[str, Any]]:
        return [as_row(one) for one in handle.rank(texts, body.source, body.closed)]

    return JSONText({"scores": await call(request, chosen, compute)})

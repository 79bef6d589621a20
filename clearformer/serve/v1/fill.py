"""POST /v1/fill: the best words for a blank, as `clearformer fill --json` prints them."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from clearformer.handles import gaps
from clearformer.serve.answers import JSONText
from clearformer.serve.asking import call, open_for
from clearformer.serve.schemas import Body, Model, Text, example
from clearformer.serve.trace import trace_of

Word = Annotated[str, Field(min_length=1, max_length=100)]
router = APIRouter()


class FillRequest(Body):
    """A request for the words that fit a blank, written ___."""

    model_config = example(model="bert", text="The man ___ a cart", n=3)

    text: Text
    n: int = Field(5, ge=1, le=100, description="number of words, best first")
    candidates: Annotated[list[Word], Field(min_length=1, max_length=1000)] | None = None
    model: Model = None


class FilledWord(BaseModel):
    text: str
    word: str
    position: int
    logprob: float | None
    probability: float | None


class Words(BaseModel):
    words: list[FilledWord]


@router.post("/v1/fill", response_model=Words)
async def fill(request: Request, body: FillRequest) -> Response:
    """Find the best words for a blank."""
    _, chosen = await open_for(request, "fill", body.model)
    trace_of(request).texts = [body.text]

    def compute(handle: Any) -> list[dict[str, Any]]:
        rows = gaps.fill(handle, body.text, body.n, body.candidates)
        return [{**asdict(row), "share": row.probability} for row in rows]

    return JSONText({"words": await call(request, chosen, compute)})

"""The embeddings of words.

    POST /api/neighbours    the most similar words of the vocabulary, as `clearformer neighbours --json`
    POST /api/vectors       the view `clearformer lens vectors --words …` of the words that the vocabulary has

Without `words`, the map has some of EXAMPLES, or else the first words of the vocabulary.
"""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from clearformer.lens.vectors import FEWEST, known_words, vectors_of_words, vocabulary_words
from clearformer.serve.answers import JSONText
from clearformer.serve.schemas import Text
from clearformer.serve.store import Opened
from clearformer.verbs.load import require_verb

EXAMPLES = "man woman king queen boy girl dog cat horse house city river"
router = APIRouter(prefix="/api")


class Neighbours(BaseModel):
    """A request for the neighbours of a word, or of a sum of words: "king - man + woman"."""

    model_config = ConfigDict(extra="forbid")

    word: Text
    n: int = Field(10, ge=1, le=1000)
    model: str | None = None


@router.post("/neighbours")
def neighbours(request: Request, body: Neighbours) -> Response:
    opened: Opened = request.app.state.store.open(body.model)
    with opened.use() as handle:
        require_verb("neighbours", handle, handle.name)
        vectors: Any = handle
        rows = [{"word": word, "cosine": cosine} for word, cosine in vectors.neighbours(body.word, body.n)]
    return JSONText({"word": body.word, "neighbours": rows})


class Vectors(BaseModel):
    """A request for a map of words. `layer` is source or target, of a translator."""

    model_config = ConfigDict(extra="forbid")

    words: Text | None = None
    layer: str | None = None
    model: str | None = None


@router.post("/vectors")
def vectors(request: Request, body: Vectors) -> Response:
    opened: Opened = request.app.state.store.open(body.model)
    with opened.use() as handle:
        known, unknown = known_words(handle, EXAMPLES if body.words is None else body.words, body.layer)
        if body.words is None:
            unknown = []
            known = known if len(known) > FEWEST else vocabulary_words(handle, len(EXAMPLES.split()), body.layer)
        values = vectors_of_words(handle, " ".join(known), body.layer)
    return JSONText({**values, "unknown": unknown})

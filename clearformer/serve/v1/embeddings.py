"""POST /v1/embeddings, in the shape of OpenAI's API: the vectors of texts, as `clearformer embed` computes them."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from clearformer.errors import ConfigError
from clearformer.handles.image_model import ImageModel
from clearformer.serve.answers import JSONText
from clearformer.serve.asking import apply, open_for
from clearformer.serve.limits import MOST_TEXTS
from clearformer.serve.refusals import Refused
from clearformer.serve.schemas import Body, Model, Text, as_list, example
from clearformer.serve.shared import Item, Verb, most_tokens
from clearformer.serve.trace import trace_of

router = APIRouter()


class EmbeddingRequest(Body):
    """A request for the vectors of texts."""

    model_config = example(model="all-MiniLM-L6-v2", input=["Someone cycles."])

    input: Text | Annotated[list[Text], Field(min_length=1, max_length=MOST_TEXTS)]
    model: Model = None
    encoding_format: Literal["float", "base64"] = Field("float", description="base64: float32, little-endian")
    dimensions: int | None = Field(None, ge=1, description="only the width of the model")
    user: str | None = Field(None, max_length=1000, description="ignored")


class Vector(BaseModel):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class ReadUsage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class Vectors(BaseModel):
    object: Literal["list"]
    data: list[Vector]
    model: str
    usage: ReadUsage


@dataclass(frozen=True)
class Embed(Verb):
    """The vector and the number of tokens of each text."""

    def prepare(self, handle: Any, texts: Sequence[str]) -> list[Item]:
        lengths = map(len, handle.tokenizer.encode(list(texts)))
        return [Item((text, n), min(n, most_tokens(handle))) for text, n in zip(texts, lengths)]

    def compute(self, handle: Any, items: list[tuple[str, int]]) -> list[tuple[np.ndarray, int]]:
        vectors = handle.embed([text for text, _ in items]).float().numpy()
        return [(vector, n) for vector, (_, n) in zip(vectors, items)]


@router.post("/v1/embeddings", response_model=Vectors)
async def embed(request: Request, body: EmbeddingRequest) -> Response:
    """Embed texts as vectors."""
    name, chosen = await open_for(request, "embed", body.model)
    if isinstance(chosen.handle, ImageModel):  # whose texts would be names of files
        raise ConfigError(f"{name} is {chosen.handle.kind}: it embeds no texts", "choose another model")
    texts = trace_of(request).texts = as_list(body.input)

    rows = await apply(request, chosen, Embed(), texts, sum(map(len, texts)))
    vectors, n_tokens = [vector for vector, _ in rows], sum(n for _, n in rows)
    if body.dimensions not in (None, len(vectors[0])):
        message = f"the vectors of {name} have {len(vectors[0])} features, not {body.dimensions}"
        raise Refused(400, message, "omit `dimensions`", "invalid", "dimensions")
    trace_of(request).prompt_tokens = n_tokens
    encode: Any = as_base64 if body.encoding_format == "base64" else np.ndarray.tolist
    data = [{"object": "embedding", "index": i, "embedding": encode(vector)} for i, vector in enumerate(vectors)]
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    return JSONText({"object": "list", "data": data, "model": name, "usage": usage})


def as_base64(vector: np.ndarray) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()

"""POST /v1/embeddings, in the shape of OpenAI's API: the vectors of texts, as `clearformer embed` computes them."""

import base64
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from clearformer.errors import ConfigError
from clearformer.handles.image_model import ImageModel
from clearformer.serve.answers import JSONText
from clearformer.serve.asking import call, open_for
from clearformer.serve.limits import MOST_TEXTS
from clearformer.serve.refusals import Refused
from clearformer.serve.schemas import Body, Model, Text, as_list, example
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


@router.post("/v1/embeddings", response_model=Vectors)
async def embed(request: Request, body: EmbeddingRequest) -> Response:
    """Embed texts as vectors."""
    name, chosen = await open_for(request, "embed", body.model)
    if isinstance(chosen.handle, ImageModel):  # whose texts would be names of files
        raise ConfigError(f"{name} is {chosen.handle.kind}: it embeds no texts", "choose another model")
    texts = trace_of(request).texts = as_list(body.input)

    def compute(handle: Any) -> tuple[np.ndarray, int]:
        return handle.embed(texts).float().numpy(), sum(map(len, handle.tokenizer.encode(texts)))

    vectors, n_tokens = await call(request, chosen, compute)
    if body.dimensions not in (None, vectors.shape[1]):
        message = f"the vectors of {name} have {vectors.shape[1]} features, not {body.dimensions}"
        raise Refused(400, message, "omit `dimensions`", "invalid", "dimensions")
    trace_of(request).prompt_tokens = n_tokens
    encode: Any = as_base64 if body.encoding_format == "base64" else np.ndarray.tolist
    rows = [{"object": "embedding", "index": i, "embedding": encode(vector)} for i, vector in enumerate(vectors)]
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    return JSONText({"object": "list", "data": rows, "model": name, "usage": usage})


def as_base64(vector: np.ndarray) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()

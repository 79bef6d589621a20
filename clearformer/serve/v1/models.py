"""GET /v1/models, in the shape of OpenAI's API: the models that a server knows, with what they can do."""

import time
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from clearformer.errors import CheckpointError
from clearformer.serve.answers import JSONText
from clearformer.serve.asking import desk_of
from clearformer.serve.store import describe

STARTED = int(time.time())
router = APIRouter(prefix="/v1/models")


class ModelFacts(BaseModel):
    id: str
    object: Literal["model"]
    created: int = Field(description="when the server learned of it, in seconds since 1970")
    owned_by: str
    task: str | None
    architecture: str | None
    verbs: list[str] = Field(description="what it can do: the commands that take it")
    problem: str | None = Field(description="why it, or its present weights, cannot be read")


class ModelList(BaseModel):
    object: Literal["list"]
    data: list[ModelFacts]


@router.get("", response_model=ModelList)
def models(request: Request) -> Response:
    """List all models."""
    return JSONText({"object": "list", "data": [as_row(facts) for facts in desk_of(request).store.describe()]})


@router.get("/{model:path}", response_model=ModelFacts)
def model(request: Request, model: str) -> Response:
    """Describe one model."""
    if not model:
        raise CheckpointError("the name of a model is missing", "GET /v1/models lists all names")
    return JSONText(as_row(describe(*desk_of(request).store.find(model))))


def as_row(facts: dict[str, Any]) -> dict[str, Any]:
    row = {"id": facts["name"], "object": "model", "created": STARTED, "owned_by": "clearformer"}
    return {**row, **{name: facts[name] for name in ("task", "architecture", "verbs", "problem")}}

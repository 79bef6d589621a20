"""What requests and answers have in common, for validation and for the description of the API."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from clearformer.serve.limits import MOST_CHARS, MOST_TEXTS

Text = Annotated[str, Field(max_length=MOST_CHARS)]
Texts = Text | Annotated[list[Text], Field(max_length=MOST_TEXTS)]
Seed = Annotated[int | None, Field(ge=-(2**63), lt=2**63, description="makes samples repeatable")]
Model = Annotated[str | None, Field(max_length=1000, description="a name of /v1/models; the first one by default")]


class Body(BaseModel):
    """A request. Unknown parameters and values of another type are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def example(**values: Any) -> ConfigDict:
    """Return a configuration of a request that shows an example of it."""
    return ConfigDict(json_schema_extra={"examples": [values]})


class ErrorDetail(BaseModel):
    message: str = Field(description="what happened, in one sentence")
    type: str = Field(description="a kind of errors, by the HTTP status")
    param: str | None = Field(description="the parameter that is wrong")
    code: str | None = Field(description="the reason, for programs")
    hint: str | None = Field(description="what to do")


class ErrorAnswer(BaseModel):
    error: ErrorDetail


STATUSES = {
    400: "The request is invalid: a parameter is unknown, missing or wrong.",
    401: "The key is missing or wrong.",
    403: "The request is for another host, or from a page of another site.",
    404: "There is no such model or path, or a file of the model is damaged.",
    405: "The path has no such method.",
    408: "The body did not arrive in time.",
    413: "The request has too many bytes.",
    422: "There are too many texts, characters or tokens.",
    429: "Too many requests are waiting. Retry-After says when to try again.",
    500: "The server has a bug.",
    503: "The server is stopping, has too little memory, or cannot read its disk.",
    504: "The answer took too long.",
}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": text} for status, text in STATUSES.items()
}


def streams(description: str, example: str) -> dict[int | str, dict[str, Any]]:
    """Return the description of an answer that may also be a stream of events."""
    event = {"type": "object", "properties": {"event": {"type": "string"}, "data": {"type": "string"}}}
    content = {"text/event-stream": {"schema": event, "example": example}}
    return {200: {"description": description, "content": content}}


def as_list(texts: str | list[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else texts

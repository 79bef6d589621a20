"""Answers: errors as JSON, events of a stream, and tensors in the safetensors format.

error     {"error": {"message": …, "hint": …, "type": …, "code": …, "param": …}}, see refusals.py
event     id: 12                the position in the stream, where it can be resumed (Last-Event-ID)
          event: token
          data: {…}             one JSON object, followed by a blank line
tensors   application/vnd.safetensors: float32 tensors by name, and all other values as JSON in the metadata
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel
from safetensors.torch import save
from starlette.exceptions import HTTPException as StarletteHTTPException
from torch import Tensor

from clearformer.errors import CheckpointError, ClearformerError, LengthError, MachineError, suggest
from clearformer.serve.refusals import Refused, error_body, later
from clearformer.serve.work import Busy, Cancelled, Closing, Expired, NoMemory, TooLarge, Unread

TENSORS = "application/vnd.safetensors"
STREAM_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}
GONE = 499  # the client has left; nobody reads this answer
STATUS: dict[type[ClearformerError], int] = {CheckpointError: 404, LengthError: 422, MachineError: 503}
STATUS |= {Busy: 429, Closing: 503, TooLarge: 422, Expired: 504, Cancelled: GONE, Unread: GONE}
CODES: dict[type[Exception], str] = {CheckpointError: "model_not_found", LengthError: "too_long"}
CODES |= {Busy: "queue_full", Closing: "draining", TooLarge: "too_long", Expired: "timeout", Cancelled: "cancelled"}
CODES |= {NoMemory: "memory", Unread: "unread"}
OPENAPI = "/api/openapi.json"
TOO_LONG = ("string_too_long", "too_long")
BRANCH = re.compile(r"(constrained-|function-|tagged-)?(str|int|float|bool|none|list|dict|literal)\b.*|[A-Z]\w*")
"""The branch of a union in the path of a mistake: text.list[str].0 is text.0."""


def status_of(error: ClearformerError) -> int:
    return next((STATUS[kind] for kind in type(error).mro() if kind in STATUS), 400)


def headers_of(error: Exception) -> dict[str, str]:
    if isinstance(error, Busy | Closing):
        return later(getattr(error, "retry_after", 5))
    return {}


def error_of(error: Exception) -> dict[str, Any]:
    """Describe an error as JSON. An error that is not the user's says so, and keeps its traceback in the terminal."""
    if isinstance(error, Refused):
        return error.body
    if isinstance(error, ClearformerError):
        return error_body(status_of(error), error.message, error.hint, CODES.get(type(error), type(error).__name__))
    message, hint = f"an unexpected error: {type(error).__name__}", "its traceback is in the terminal of the server"
    return error_body(500, message, hint, "bug")


def finite(value: Any) -> Any:
    """Replace numbers that are not finite by None, at any depth: JSON has neither infinity nor NaN."""
    if isinstance(value, Mapping):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class JSONText(Response):
    """A response of one JSON object, by the standard library: faster than FastAPI's conversion of long lists."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return as_json(content).encode("utf-8", "replace")  # a name in a request may have half a character


def event(name: str, data: Any, id: str | None = None) -> str:
    """Return one server-sent event."""
    position = "" if id is None else f"id: {id}\n"
    return f"{position}event: {name}\ndata: {as_json(data)}\n\n"


def tensors_of(tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> Response:
    """Return tensors in the safetensors format, with all other values in its metadata."""
    ready = {name: tensor.detach().float().contiguous() for name, tensor in tensors.items()}
    return Response(save(ready, metadata={"values": as_json(values)}), media_type=TENSORS)


def answer_of(values: dict[str, Any], tensors: Mapping[str, Tensor], accept: str) -> Response:
    """Return tensors and other values in the format that is accepted: safetensors, or JSON by default.

    values["activations"] has an object for each tensor by its name, with its shape and the names of rows and columns.
    """
    if TENSORS in accept:
        return tensors_of(tensors, values)
    for name, tensor in tensors.items():
        values["activations"][name]["values"] = tensor.float().tolist()
    return JSONText(values)


def explain_errors(app: FastAPI) -> None:
    """Let the application answer every error as JSON."""

    @app.exception_handler(ClearformerError)
    async def user_error(request: Request, error: ClearformerError) -> Response:
        return JSONText(error_of(error), status_of(error), headers=headers_of(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        refused = describe_invalid(request, error)
        return JSONText(refused.body, refused.status)

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> Response:
        return JSONText(error.body, error.status, headers=dict(error.headers or {}))

    @app.exception_handler(404)
    @app.exception_handler(405)
    async def unknown(request: Request, error: HTTPException) -> Response:
        message = f"there is no {request.method} {request.url.path}"
        body = error_body(error.status_code, message, f"GET {OPENAPI} lists all paths", "unknown_path")
        return JSONText(body, error.status_code, headers=dict(error.headers or {}))

    @app.exception_handler(StarletteHTTPException)
    async def other(request: Request, error: StarletteHTTPException) -> Response:
        body = error_body(error.status_code, str(error.detail), f"GET {OPENAPI} describes every request")
        return JSONText(body, error.status_code, headers=dict(error.headers or {}))

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> Response:
        return JSONText(error_of(error), 500)


def describe_invalid(request: Request, error: RequestValidationError) -> Refused:
    """Describe the first mistake in a request: 422 for what is too long, else 400. Of a union, the closest branch."""
    first = max(error.errors(), key=importance)
    path = [part for part in first["loc"][1:] if not (isinstance(part, str) and BRANCH.fullmatch(part))]
    param = ".".join(map(str, path)) or None
    if first["type"] == "extra_forbidden":
        known = known_names(request.scope.get("route"), path[:-1])
        return Refused(
            400, f"there is no parameter `{param}`", suggest(str(path[-1]), known), "unknown_parameter", param
        )
    sentence = str(first["msg"])
    message = f"{param or 'the body'}: {sentence[:1].lower()}{sentence[1:]}"
    status, code = (422, "too_long") if first["type"] in TOO_LONG else (400, "invalid")
    return Refused(status, message, f"GET {OPENAPI} describes every request", code, param)


def importance(mistake: Mapping[str, Any]) -> tuple[bool, bool, int]:
    return mistake["type"] in TOO_LONG, mistake["type"] == "extra_forbidden", len(mistake["loc"])


def known_names(route: Any, path: Sequence[str | int]) -> list[str]:
    """Return the names of the parameters that the body of a route has, at a path inside it."""
    kinds = [parameter.field_info.annotation for parameter in route.dependant.body_params]
    models = [model for kind in kinds for model in models_in(kind)]
    for part in path:
        if isinstance(part, str):
            fields = [model.model_fields[part] for model in models if part in model.model_fields]
            models = [model for field in fields for model in models_in(field.annotation)]
    return [name for model in models for name in model.model_fields]


def models_in(kind: Any) -> list[type[BaseModel]]:
    """Return the models in an annotation, such as list[Message] | None."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    return [model for part in get_args(kind) for model in models_in(part)]


def query_names(dependant: Any) -> Iterator[str]:
    """Yield the names of the parameters that the URL of a route may have, also those in a model."""
    for parameter in dependant.query_params:
        models = models_in(parameter.field_info.annotation)
        yield from (field.alias or name for model in models for name, field in model.model_fields.items())
        if not models:
            yield parameter.alias
    for other in dependant.dependencies:
        yield from query_names(other)


async def refuse_unknown_queries(request: Request) -> None:
    """A dependency of every route: raise Refused for a parameter of the URL that the route does not have.

    It is a coroutine, since each request would otherwise need a thread for it.
    """
    known = {*query_names(request.scope["route"].dependant), "token"}  # the key of a page, see guard.py
    for name in request.query_params:
        if name not in known:
            hint = suggest(name, known - {"token"}) if len(known) > 1 else "omit it"
            raise Refused(400, f"there is no parameter `{name}`", hint, "unknown_parameter", name)

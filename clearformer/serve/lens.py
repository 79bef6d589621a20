"""Look inside a model by HTTP.

    GET  /api/lens                every view, with the options it needs and takes
    GET  /api/lens/list           names and shapes of all activations, as `clearformer lens list --json`
    POST /api/lens/{view}         the values of a view, as `clearformer lens VIEW --json`, with heads switched off
    POST /api/activations         activations by name on a text, whole or as thumbnails; what each position predicts

Activations come as JSON, or with `Accept: application/vnd.safetensors` in that format, which is exact and much faster.
"""

from typing import Annotated

from fastapi import APIRouter, Header, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from clearformer.errors import ConfigError, suggest
from clearformer.handles.handle import Handle
from clearformer.handles.image_model import ImageModel
from clearformer.handles.transcriber import Transcriber
from clearformer.lens.reading import read
from clearformer.serve.activations import SIDE, record
from clearformer.serve.answers import JSONText
from clearformer.serve.schemas import Text
from clearformer.serve.store import Opened
from clearformer.serve.translate import Off

router = APIRouter(prefix="/api")


class View(BaseModel):
    """A request for a view: a text, a model, heads to switch off, and the options of the view."""

    model_config = ConfigDict(extra="allow")

    text: Text | None = None
    model: str | None = None
    off: Off = []


class Activations(BaseModel):
    """A request for activations. `target` is the translation that a translator reads, by default its own."""

    model_config = ConfigDict(extra="forbid")

    text: Text
    target: Text | None = None
    model: str | None = None
    names: Annotated[list[str], Field(max_length=1000, description="names or patterns, such as *.cross.pattern[0]")]
    thumbnails: Annotated[
        list[str],
        Field(max_length=1000, description=f"as names, but of at most {SIDE} × {SIDE}; patterns may match nothing"),
    ] = []
    off: Off = []
    alternatives: int = Field(0, ge=0, le=50, description="most probable tokens at each position; 0 predicts nothing")


@router.get("/lens")
def views() -> Response:
    from clearformer.verbs.lens import VIEWS

    rows = [{"name": name, "needs": sorted(kind.needs), "takes": sorted(kind.takes)} for name, kind in VIEWS.items()]
    return JSONText({"views": rows})


@router.get("/lens/list")
def names(request: Request, model: str | None = None, pattern: str = "*", length: int | None = None) -> Response:
    from clearformer.verbs.lens import list_activations

    store = request.app.state.store
    store.open(model)  # raises for an unknown name
    name = model or store.default
    return JSONText({**list_activations(store.paths()[name], pattern, length), "name": name})


@router.post("/lens/{name}")
def view(request: Request, name: str, body: View) -> Response:
    from clearformer.verbs.lens import Request as Options
    from clearformer.verbs.lens import view as compute

    options = body.model_extra or {}
    names = set(Options.NAMES) - {"texts"}  # the name of a file, as is `out`, by which the command writes one
    if unknown := options.keys() - names:
        raise ConfigError(f"a view has no option `{min(unknown)}`", suggest(min(unknown), names))
    opened: Opened = request.app.state.store.open(body.model)
    with opened.use(body.off) as handle:
        refuse_files(handle)
        return JSONText(compute(name, handle, body.text, **options))


@router.post("/activations")
def activations(request: Request, body: Activations, accept: Annotated[str, Header()] = "") -> Response:
    opened: Opened = request.app.state.store.open(body.model)
    with opened.use(body.off) as handle:
        refuse_files(handle)
        recorded = record(read(handle, body.text, body.target), body.names, body.thumbnails, body.alternatives)
    return recorded.answer(accept)


def refuse_files(handle: Handle) -> None:
    """Raise an error for a model whose text would be the name of a file: a request reads no file of this machine."""
    if isinstance(handle, ImageModel | Transcriber):
        message = f"{handle.name} is {handle.kind}: it reads a file, and no text"
        raise ConfigError(message, "send the bytes of the file to /api/files/lens/VIEW")

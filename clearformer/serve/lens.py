"""Look inside a model by HTTP.

    GET  /api/lens                every view, with the options it needs and takes
    GET  /api/lens/list           names and shapes of all activations, as `clearformer lens list --json`
    POST /api/lens/{view}         the values of a view, as `clearformer lens VIEW --json`, with heads switched off
    POST /api/activations         activations by name on a text, whole or as thumbnails; what each position predicts

Activations come as JSON, or with `Accept: application/vnd.safetensors` in that format, which is exact and much faster.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from fastapi import APIRouter, Header, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from clearformer.errors import ConfigError, DataError, suggest
from clearformer.handles.handle import Handle
from clearformer.handles.image_model import ImageModel
from clearformer.handles.transcriber import Transcriber
from clearformer.lens.points import select
from clearformer.lens.reading import Reading, read
from clearformer.lens.session import Lens
from clearformer.serve.answers import TENSORS, JSONText, tensors_of
from clearformer.serve.schemas import Text
from clearformer.serve.store import Opened
from clearformer.serve.translate import Off
from clearformer.wording import count

MOST_NUMBERS = 8_000_000
SIDE = 22  # rows and columns of a thumbnail, at most
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
        list[str], Field(max_length=1000, description=f"as names, but of at most {SIDE} × {SIDE}")
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
        reading = read(handle, body.text, body.target)
        logits, look = reading.look(keep=[*body.names, *body.thumbnails])
        tensors = chosen(look, body.names)
        thumbnails = {name: thumbnail(tensor) for name, tensor in chosen(look, body.thumbnails).items()}
    check_size(tensors)
    values: dict[str, Any] = {
        "model": reading.name,
        "source": reading.source,
        "target": reading.target,
        "outputs": reading.outputs,
        "predictions": predictions(reading, logits, body.alternatives),
        "activations": {name: axes(reading, name, tensor) for name, tensor in tensors.items()},
        "thumbnails": {name: {"shape": list(tensor.shape)} for name, tensor in thumbnails.items()},
    }
    if TENSORS in accept:
        return tensors_of({**tensors, **{f"thumbnails.{name}": one for name, one in thumbnails.items()}}, values)
    for group, some in (("activations", tensors), ("thumbnails", thumbnails)):
        for name, tensor in some.items():
            values[group][name]["values"] = tensor.float().tolist()
    return JSONText(values)


def check_size(tensors: Mapping[str, Tensor]) -> None:
    n_numbers = sum(tensor.numel() for tensor in tensors.values())
    if n_numbers > MOST_NUMBERS:
        message = f"these activations have {count(n_numbers, 'number')}; a response has at most {MOST_NUMBERS:,}"
        raise DataError(message, "name fewer activations, or give a shorter text")


def refuse_files(handle: Handle) -> None:
    """Raise an error for a model whose text would be the name of a file: a request reads no file of this machine."""
    if isinstance(handle, ImageModel | Transcriber):
        message = f"{handle.name} is {handle.kind}: it reads a file, and no text"
        raise ConfigError(message, "send the bytes of the file to /api/files/lens/VIEW")


def whole(recorded: Any) -> Tensor:
    """Return an activation of the only text as one tensor. A recurrent decoder has one for each token it writes."""
    if isinstance(recorded, list):
        recorded = torch.cat(recorded, 1) if recorded[0].dim() > 2 else torch.stack(recorded, 1)
    tensor: Tensor = recorded
    return tensor[0]


def chosen(look: Lens, names: list[str]) -> dict[str, Tensor]:
    """Return kept activations by name, each with the heads (H, …) that its name asks for: the lens may have more."""
    result: dict[str, Tensor] = {}
    for name, heads in select(names, look.known).items():
        if name in look:
            tensor, kept = whole(look[name]), look.heads[name]
            where = heads if heads is None or kept is None else [kept.index(head) for head in heads]
            result[name] = tensor if heads in (None, kept) else tensor[where]
    return result


def thumbnail(tensor: Tensor) -> Tensor:
    """Return the largest magnitude of each group of cells: (…, T, S) -> (…, t, s), where t and s are at most 22."""
    tensor = tensor.abs()
    for axis in (-2, -1)[-tensor.dim() :]:
        n = -(-tensor.size(axis) // SIDE)  # neighbours in a group
        if n > 1:
            missing = (0, 0) * (-1 - axis) + (0, -tensor.size(axis) % n)  # of the last group, filled with zeros
            tensor = F.pad(tensor, missing).unflatten(axis, (-1, n)).amax(axis)
    return tensor


def axes(reading: Reading, name: str, tensor: Tensor) -> dict[str, Any]:
    """Return the shape of an activation, and the names of its rows and columns where they are positions."""
    *path, leaf = name.split(".")
    rows: list[str] | None
    columns: list[str] | None = None
    if leaf in ("pattern", "scores"):
        rows, columns = reading.axes_of(name)
        n_prefix = tensor.size(-1) - len(columns)  # the columns of a learned prefix come first
        columns = [*(f"prefix {i}" for i in range(n_prefix)), *columns]
    else:
        is_source = reading.source is not None and (
            path[:1] == ["encoder"] or (path[-1:] == ["cross"] and leaf in "kv")
        )
        rows = reading.source if is_source else reading.target
        rows = rows if rows is not None and tensor.dim() > 1 and tensor.size(-2) == len(rows) else None
    return {"shape": list(tensor.shape), "rows": rows, "columns": columns}


def predictions(reading: Reading, logits: Tensor, n: int) -> list[dict[str, Any]] | None:
    """Return what each position predicts: the probability of the token that follows in the text, and the n best."""
    if not n or reading.spell is None or logits.dim() != 3 or logits.size(1) != len(reading.outputs):
        return None
    probabilities = logits[0].float().softmax(-1)
    best = probabilities.topk(min(n, probabilities.size(-1)), dim=-1)
    labels = getattr(reading.batch, "labels", None)
    known = labels[0].clamp(min=0) if reading.source is not None and labels is not None else None
    of_labels = None if known is None else probabilities.gather(1, known[:, None])[:, 0].tolist()
    rows = []
    for t, output in enumerate(reading.outputs):
        names = reading.spell(best.indices[t].tolist())
        some = [{"token": name, "probability": value} for name, value in zip(names, best.values[t].tolist())]
        probability = None if of_labels is None else of_labels[t]
        rows.append({"token": output, "probability": probability, "alternatives": some})
    return rows

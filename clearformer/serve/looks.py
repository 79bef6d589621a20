"""Look at images and recordings by HTTP. The body of a request is the file, and its options are in the query.

POST /api/files/classify          all classes of an image, as `clearformer classify --json`
POST /api/files/grad-cam          evidence for a class (`label`) in a `layer`, as `clearformer plot grad-cam --json`
POST /api/files/rollout           attention rollout of a Vision Transformer, as `plot rollout --json`
POST /api/files/features          feature maps of a `layer`, as `plot features --json`
POST /api/files/reconstruction    the output of an autoencoder, pixels from 0 to 255, and its error
POST /api/files/lens/{view}       any view of an image model or a speech recogniser, such as ctc
POST /api/files/activations       activations by name (`names`, repeated), as /api/activations; with the image as the
                                  model sees it, and the pixels that each value of a feature map depends on (`field`)
GET  /api/filters                 the filters of the first layer, as `plot filters --json`; no file
"""

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field
from torch import nn

from clearformer.data.image_sample import ImageSample
from clearformer.errors import ConfigError, suggest
from clearformer.handles.handle import Handle
from clearformer.handles.image_autoencoder import ImageAutoencoder
from clearformer.handles.image_model import ImageModel
from clearformer.lens.points import points
from clearformer.lens.reading import read
from clearformer.lens.shown import shown
from clearformer.serve.activations import record
from clearformer.serve.answers import JSONText
from clearformer.serve.classify import as_predictor
from clearformer.serve.store import Opened
from clearformer.serve.translate import Off
from clearformer.serve.uploads import BODY, opened_file, uploaded

router = APIRouter(prefix="/api")
Body = Annotated[bytes, Depends(uploaded)]


class Options(BaseModel):
    """The query of a request with an image: a layer with feature maps, and a class."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    layer: str | None = None
    label: str | None = None


class ViewOptions(BaseModel):
    """The query of a view: the options of `clearformer lens` that apply to a file."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    off: Off = []
    layer: str | None = None
    position: int | None = None
    steps: Annotated[int, Field(ge=1, le=1000)] | None = None
    head: int | None = None
    top: Annotated[int, Field(ge=1, le=50)] | None = None


class Activations(BaseModel):
    """The query of a request for activations of an image or a recording."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    names: Annotated[list[str], Field(max_length=1000, description="names or patterns, such as blocks.*.pattern[0]")]
    off: Off = []


def as_image_model(handle: Handle) -> ImageModel:
    if not isinstance(handle, ImageModel):
        raise ConfigError(f"{handle.name} is {handle.kind}: it reads no images", "choose a model for images")
    return handle


def classified(handle: ImageModel, pixels: np.ndarray, options: Options) -> dict[str, Any]:
    predictor = as_predictor(handle)
    return {predictor.json_key: [predictor.predict(pixels, top=len(handle.classes))]}


def grad_cam(handle: ImageModel, pixels: np.ndarray, options: Options) -> dict[str, Any]:
    from clearformer.lens.grad_cam import explain

    return explain(handle, ImageSample(pixels[None], [""]), options.layer, options.label)


def rollout(handle: ImageModel, pixels: np.ndarray, options: Options) -> dict[str, Any]:
    from clearformer.lens.rollout import follow

    return follow(handle, ImageSample(pixels[None], [""]))


def features(handle: ImageModel, pixels: np.ndarray, options: Options) -> dict[str, Any]:
    from clearformer.lens.features import look

    return look(handle, ImageSample(pixels[None], [""]), options.layer)


def reconstruction(handle: ImageModel, pixels: np.ndarray, options: Options) -> dict[str, Any]:
    if not isinstance(handle, ImageAutoencoder):
        raise ConfigError(f"{handle.name} is {handle.kind}: it reconstructs no images", "choose an autoencoder")
    output = (255 * handle.reconstruct(pixels[None])).round().clamp(0, 255).byte().numpy()
    return {
        "title": f"Reconstruction of {handle.name}",
        "image": shown(pixels[None])[0],
        "reconstruction": shown(output)[0],
        "error": float(handle.errors(pixels[None])[0]),
    }


LOOKS: dict[str, Callable[[ImageModel, np.ndarray, Options], dict[str, Any]]] = {
    "classify": classified,
    "grad-cam": grad_cam,
    "rollout": rollout,
    "features": features,
    "reconstruction": reconstruction,
}


@router.post("/files/lens/{name}", openapi_extra=BODY)
def view(request: Request, name: str, options: Annotated[ViewOptions, Query()], body: Body) -> Response:
    from clearformer.verbs.lens import view as compute

    opened: Opened = request.app.state.store.open(options.model)
    contents = opened_file(opened.handle, body)
    with opened.use(options.off) as handle:
        given = options.model_dump(exclude={"model", "off"}, exclude_none=True)
        return JSONText(compute(name, handle, contents, **given))


@router.post("/files/activations", openapi_extra=BODY)
def activations(
    request: Request, options: Annotated[Activations, Query()], body: Body, accept: Annotated[str, Header()] = ""
) -> Response:
    opened: Opened = request.app.state.store.open(options.model)
    contents = opened_file(opened.handle, body)
    with opened.use(options.off) as handle:
        recorded = record(read(handle, contents), options.names)
    if isinstance(opened.handle, ImageModel):
        recorded.values["image"] = shown(contents[None])[0]
    return recorded.answer(accept)


@router.post("/files/{name}", openapi_extra=BODY)
def look(request: Request, name: str, options: Annotated[Options, Query()], body: Body) -> Response:
    if name not in LOOKS:
        raise ConfigError(f"there is no view of an image called `{name}`", suggest(name, LOOKS))
    opened: Opened = request.app.state.store.open(options.model)
    pixels = opened_file(as_image_model(opened.handle), body)
    with opened.use() as handle:
        return JSONText(LOOKS[name](as_image_model(handle), pixels, options))


@router.get("/looks")
def looks(request: Request, model: str | None = None) -> Response:
    handle = as_image_model(request.app.state.store.open(model).handle)
    has_maps = any(isinstance(module, nn.Conv2d) for module in handle.model.modules())
    has_attention = any(name.endswith(".pattern") for name in points(handle.model))
    has = {
        "classify": "classify" in handle.verbs,
        "grad-cam": "classify" in handle.verbs and has_maps,
        "rollout": has_attention,
        "features": has_maps,
        "reconstruction": isinstance(handle, ImageAutoencoder),
        "filters": has_maps,
    }
    return JSONText({"model": handle.name, "looks": [name for name, is_there in has.items() if is_there]})


@router.get("/filters")
def filters(request: Request, model: str | None = None) -> Response:
    from clearformer.lens.filters import look

    opened: Opened = request.app.state.store.open(model)
    with opened.use() as handle:
        return JSONText(look(as_image_model(handle)))

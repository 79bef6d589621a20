"""The classes of a text or an image, and how far their probabilities can be trusted.

    POST /api/classify       all classes of a text, as `clearformer classify --json` prints them
    GET  /api/classes        what a model classifies, its classes, and its calibration, if it has one

looks.py classifies images.
"""

import json
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict

from clearformer.checkpoint import CALIBRATION
from clearformer.errors import CheckpointError
from clearformer.handles.handle import Handle
from clearformer.handles.image_model import ImageModel
from clearformer.handles.tagger import Tagger
from clearformer.serve.answers import JSONText
from clearformer.serve.lens import refuse_files
from clearformer.serve.schemas import Text
from clearformer.serve.store import Opened
from clearformer.serve.translate import Off
from clearformer.verbs.load import uses

router = APIRouter(prefix="/api")


class Classify(BaseModel):
    """A request to classify a text, or a pair of texts."""

    model_config = ConfigDict(extra="forbid")

    text: Text
    pair: Text | None = None
    model: str | None = None
    off: Off = []


def as_predictor(handle: Handle) -> Any:
    if "classify" not in handle.verbs:
        raise CheckpointError(f"{handle.name} is {handle.kind}: it cannot classify", uses(handle))
    return handle


@router.post("/classify")
def classify(request: Request, body: Classify) -> Response:
    opened: Opened = request.app.state.store.open(body.model)
    with opened.use(body.off) as handle:
        predictor = as_predictor(handle)
        refuse_files(handle)
        row = predictor.predict(body.text, body.pair, top=max(1, len(predictor.classes)))
    return JSONText({predictor.json_key: [row]})


@router.get("/classes")
def classes(request: Request, model: str | None = None) -> Response:
    """Describe a classifier. `input` is text, words or image; a regression model has no classes."""
    handle = as_predictor(request.app.state.store.open(model).handle)
    kind = "image" if isinstance(handle, ImageModel) else "words" if isinstance(handle, Tagger) else "text"
    folder = None if handle.path is None else handle.path
    facts = {
        "model": handle.name,
        "input": kind,
        "is_pair": bool(handle.is_pair),
        "classes": handle.classes,
        "temperature": handle.temperature,
        "calibration": None if folder is None else read_calibration(folder),
        "command": f"clearformer evaluate --model {folder or handle.name} "
        f"{'--images photos/' if kind == 'image' else '--labels test.tsv'} --calibrate",
    }
    return JSONText(facts)


def read_calibration(folder: Path) -> dict[str, Any] | None:
    """Return what `evaluate --calibrate` saved: temperature, ece, and the bins of reliability in newer versions."""
    try:
        record: dict[str, Any] = json.loads((folder / CALIBRATION).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # a damaged file is an error of opening the model
    return record

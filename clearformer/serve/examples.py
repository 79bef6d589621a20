"""Examples of the validation data of a run, so that a page shows something before a user brings a file.

    GET /api/examples             {"examples": [{"index": 3, "name": "coat"}, …]}, at most 8; none without prepared data
    GET /api/examples/{index}     an example as a file: PNG or WAV

An example is named by its index, never by a path.
"""

import wave
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import Response

from clearformer.checkpoint import RunFolder
from clearformer.data.image_store import ImageStore
from clearformer.data.recordings import String, Strings
from clearformer.data.sources import evenly_spaced
from clearformer.errors import DataError
from clearformer.handles.handle import Handle
from clearformer.handles.image_model import ImageModel
from clearformer.handles.transcriber import Transcriber
from clearformer.loading.folder import read_recipe
from clearformer.serve.answers import JSONText
from clearformer.serve.store import Opened
from clearformer.tasks.speech import HELD_OUT_SEED, SpeechTask

MOST = 8
router = APIRouter(prefix="/api")


@router.get("/examples")
def examples(request: Request, model: str | None = None) -> Response:
    opened: Opened = request.app.state.store.open(model)
    try:
        names = names_of(opened.handle)
    except DataError:
        names = []  # the run folder has no prepared data, or has been moved without it
    chosen = evenly_spaced(list(enumerate(names)), MOST)
    return JSONText({"examples": [{"index": i, "name": name} for i, name in chosen]})


@router.get("/examples/{index}")
def example(request: Request, index: int, model: str | None = None) -> Response:
    handle = request.app.state.store.open(model).handle
    n = len(names_of(handle))
    if not 0 <= index < n:
        raise DataError(f"there is no example {index}", f"choose from 0 to {n - 1}" if n else "bring a file")
    if isinstance(handle, Transcriber):
        strings, rows = strings_of(handle)
        return Response(as_wav(strings.sound(rows[index]), handle.sound.rate), media_type="audio/wav")
    return Response(as_png(images_of(handle).pixels[index]), media_type="image/png")


def names_of(handle: Handle) -> Sequence[str]:
    """Return a name for each example: its class or its transcript. Other models than these have no examples."""
    if isinstance(handle, Transcriber):
        strings, rows = strings_of(handle)
        return [strings.text(row) for row in rows]
    if isinstance(handle, ImageModel) and not handle.image.margin:  # a margin would be cut off a second time
        return [handle.classes[k] if handle.classes else "image" for k in images_of(handle).classes.tolist()]
    return []


def images_of(handle: Any) -> ImageStore:
    return ImageStore(folder_of(handle).data / "valid.safetensors")


def strings_of(handle: Transcriber) -> tuple[Strings, list[String]]:
    """Return the validation recordings of a run, joined as in its validation."""
    folder = folder_of(handle)
    task = SpeechTask(read_recipe(folder.path), folder)
    task.tokenizers = [handle.tokenizer]
    if not task.path("valid").exists():
        raise DataError(f"{task.path('valid')} does not exist", "bring a file")
    strings = task.split("valid").strings
    return strings, strings.epoch(HELD_OUT_SEED, 0)


def folder_of(handle: Handle) -> RunFolder:
    if handle.path is None:
        raise DataError(f"{handle.name} has no run folder", "bring a file")
    return RunFolder(handle.path)


def as_png(pixels: np.ndarray) -> bytes:
    """Encode pixels, uint8 (C, Y, X)."""
    from PIL import Image

    file = BytesIO()
    Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)).save(file, "PNG")
    return file.getvalue()


def as_wav(samples: np.ndarray, rate: int) -> bytes:
    """Encode int16 samples (N,)."""
    file = BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(samples.astype("<i2").tobytes())
    return file.getvalue()

"""Files that a request brings: its body is the file itself, decoded by its first bytes.

    pixels    PNG, JPEG, GIF, WebP, BMP or TIFF of at most 40 million pixels    data/images.py
    samples   WAV, FLAC, OGG, MP3 or AIFF of at most 60 seconds                 data/audio.py

Nothing is written to disk, and no request names a file of this machine. guard.py limits the bytes of the body.
"""

from typing import Any

import numpy as np
from fastapi import Request

from clearformer.data.audio import SoundBytes, read_audio
from clearformer.errors import ConfigError, DataError
from clearformer.handles.handle import Handle
from clearformer.handles.image_model import ImageModel
from clearformer.handles.transcriber import Transcriber

FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF")  # others of Pillow are rare, or start other programs (EPS)
MOST_PIXELS = 40_000_000
MOST_SECONDS = 60.0
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
"""The description of such a body in /api/openapi.json."""


async def uploaded(request: Request) -> bytes:
    """Return the body of a request, which is a file. Its content type is not trusted, and need not be right."""
    kind = request.headers.get("content-type", "")
    if kind.startswith(("application/json", "multipart/", "application/x-www-form-urlencoded")):
        raise ConfigError(f"the body is {kind.split(';')[0]}, not a file", "send the bytes of the file as the body")
    body = await request.body()
    if not body:
        raise DataError("the request has no file", "send the bytes of the file as the body")
    return body


def opened_file(handle: Handle, body: bytes) -> np.ndarray:
    """Decode a file as the input of a model: pixels uint8 (C, size, size), or int16 samples (N,)."""
    if isinstance(handle, ImageModel):
        return pixels_of(handle, body)
    if isinstance(handle, Transcriber):
        return handle.open(read_audio(SoundBytes(body), MOST_SECONDS))
    raise ConfigError(f"{handle.name} is {handle.kind}: it reads texts, not files", "send a text to /api/lens/VIEW")


def pixels_of(handle: ImageModel, body: bytes) -> np.ndarray:
    from clearformer.data.fitting import fitted
    from clearformer.data.images import decode

    return fitted(decode(body, "the image", FORMATS, MOST_PIXELS), handle.image).copy()  # Pillow's memory is read-only

"""A picture of any shape and mode as uint8 (C, size, size), the way [image] says; and many of them, on all cores.

crop       the largest square in the middle          pad        all of it, between black bars
stretch    all of it, out of proportion
"""

from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps

from clearformer.data.images import Picture
from clearformer.data.pixels import ImageConfig
from clearformer.data.split import place
from clearformer.errors import DataError

CHUNK = 256  # pictures decoded at a time
MODES = {1: "L", 3: "RGB"}


def fitted(image: Image.Image, config: ImageConfig) -> np.ndarray:
    """uint8 (C, size, size)."""
    assert config.size is not None
    assert config.channels is not None
    square, how = (config.size, config.size), Image.Resampling.BILINEAR
    if image.mode != MODES[config.channels]:
        image = image.convert(MODES[config.channels])
    if config.margin:
        left, top = (round(config.margin * side) for side in image.size)
        image = image.crop((left, top, image.width - left, image.height - top))
    if image.size != square:
        match config.fit:
            case "crop":
                image = ImageOps.fit(image, square, how)
            case "pad":
                image = ImageOps.pad(image, square, how)
            case "stretch":
                image = image.resize(square, how)
    return np.atleast_3d(np.asarray(image)).transpose(2, 0, 1)


class Fitted(NamedTuple):
    """A picture's pixels uint8 (C, size, size), its label, and its place in [0, 1), by which it may be held out.

    The place comes from the pixels as they were, so that copies of a picture land on one side, whatever [image] says.
    """

    pixels: np.ndarray
    label: str
    place: float


def fit_all(pictures: Iterable[Picture], config: ImageConfig, broken: list[str]) -> Generator[Fitted]:
    """In order. Those that cannot be read are left out, and what is wrong with them is added to `broken`."""

    def fit(picture: Picture) -> Fitted | DataError:
        try:
            image = picture.open()
        except DataError as error:
            return error
        return Fitted(fitted(image, config), picture.label, place(image.tobytes()))

    rest = iter(pictures)
    with ThreadPoolExecutor() as pool:
        while chunk := list(islice(rest, CHUNK)):
            for found in pool.map(fit, chunk):
                if isinstance(found, DataError):
                    broken.append(found.message)
                else:
                    yield found

"""Convert images of any shape and mode to uint8 (C, size, size), as set by [image], in parallel on all cores.

crop       the largest square in the middle          pad        the whole image, with black bars
stretch    the whole image, with its proportions changed
"""

from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps

from clearformer.data.images import ImageFile
from clearformer.data.pixels import ImageConfig
from clearformer.data.split import place
from clearformer.errors import DataError

CHUNK = 256  # images decoded at a time
MODES = {1: "L", 3: "RGB"}


def fitted(image: Image.Image, config: ImageConfig) -> np.ndarray:
    """Convert an image to uint8 (C, size, size)."""
    assert config.size is not None
    assert config.channels is not None
    square, method = (config.size, config.size), Image.Resampling.BILINEAR
    if image.mode != MODES[config.channels]:
        image = image.convert(MODES[config.channels])
    if config.margin:
        left, top = (round(config.margin * side) for side in image.size)
        image = image.crop((left, top, image.width - left, image.height - top))
    if image.size != square:
        match config.fit:
            case "crop":
                image = ImageOps.fit(image, square, method)
            case "pad":
                image = ImageOps.pad(image, square, method)
            case "stretch":
                image = image.resize(square, method)
    return np.atleast_3d(np.asarray(image)).transpose(2, 0, 1)


class Fitted(NamedTuple):
    """An image's pixels, uint8 (C, size, size), label, place in [0, 1), which decides its split, and file name.

    The place is computed from the pixels of the file, so that copies of an image belong to one split in every recipe.
    """

    pixels: np.ndarray
    label: str
    place: float
    name: str = ""


def fit_all(images: Iterable[ImageFile], config: ImageConfig, broken: list[str]) -> Generator[Fitted]:
    """Yield the fitted images in order. Unreadable files are skipped, and their error messages added to `broken`."""

    def fit(file: ImageFile) -> Fitted | DataError:
        try:
            image = file.open()
        except DataError as error:
            return error
        return Fitted(fitted(image, config), file.label, place(image.tobytes()), file.name)

    rest = iter(images)
    with ThreadPoolExecutor() as pool:
        while chunk := list(islice(rest, CHUNK)):
            for outcome in pool.map(fit, chunk):
                if isinstance(outcome, DataError):
                    broken.append(outcome.message)
                else:
                    yield outcome

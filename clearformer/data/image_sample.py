"""Sample images for a figure: single files, or at most n evenly spaced images of a labelled dataset."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clearformer.data.fitting import fit_all
from clearformer.data.images import ImageFile, ImageSource, decode
from clearformer.data.pixels import ImageConfig
from clearformer.data.sources import evenly_spaced, require_file
from clearformer.errors import DataError
from clearformer.wording import count


class ImageSample(NamedTuple):
    """The pixels of images, uint8 (N, C, size, size), and their labels, "" for images without one."""

    pixels: np.ndarray
    labels: list[str]


def sample_images(paths: Sequence[Path], kind: ImageSource, image: ImageConfig, n: int) -> ImageSample:
    """Return at most n images of the given paths, read with the settings of `kind`. Unreadable images are skipped."""
    files = [image for path in paths for image in read_images(path, kind)]
    broken: list[str] = []
    readable = list(fit_all(evenly_spaced(files, n), image, broken))
    if not readable:
        raise DataError(f"found {count(len(broken), 'image')}, but none can be read: {broken[0]}", "check the files")
    return ImageSample(np.stack([image.pixels for image in readable]), [image.label for image in readable])


def named_images(path: Path, kind: ImageSource, image: ImageConfig, names: Sequence[str]) -> np.ndarray:
    """Return the pixels of the images with these names at a path, in the order of the names: uint8 (N, C, size, size).

    The names are those of `ImageFile`.
    """
    wanted = set(names)
    files = [file for file in kind.changed(path=path).read() if file.name in wanted]
    pixels = {file.name: file.pixels for file in fit_all(files, image, [])}
    return np.stack([pixels[name] for name in names])


def read_images(path: Path, kind: ImageSource) -> list[ImageFile]:
    """Return the images at a path. A file with an image suffix is a single image without a label."""
    from PIL import Image

    if path.suffix.lower() in Image.registered_extensions():
        require_file(path)
        return [ImageFile(str(path), "", lambda: decode(path, str(path)))]
    return list(kind.changed(path=path).read())

"""A sample of images for a figure: single files, or at most n of a labelled source, evenly spaced."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clearformer.data.fitting import fit_all
from clearformer.data.images import ImageSource, Picture, decode
from clearformer.data.pixels import ImageConfig
from clearformer.data.sources import evenly, require_file
from clearformer.errors import DataError


class ImageSample(NamedTuple):
    """pixels uint8 (N, C, size, size), and the label of each, "" where it has none."""

    pixels: np.ndarray
    labels: list[str]


def sample_images(paths: Sequence[Path], kind: ImageSource, image: ImageConfig, n: int) -> ImageSample:
    """At most n images from files and from sources, which are read as `kind` is. Unreadable ones are left out."""
    every = [picture for path in paths for picture in read_images(path, kind)]
    broken: list[str] = []
    readable = list(fit_all(evenly(every, n), image, broken))
    if not readable:
        raise DataError(f"none of {len(broken):,} images can be read: {broken[0]}", "look at one of them")
    return ImageSample(np.stack([one.pixels for one in readable]), [one.label for one in readable])


def read_images(path: Path, kind: ImageSource) -> list[Picture]:
    """The images at a path. A file with an image suffix is a single image, without a label."""
    from PIL import Image

    if path.suffix.lower() in Image.registered_extensions():
        require_file(path)
        return [Picture(str(path), "", lambda: decode(path, str(path)))]
    return list(kind.changed(path=path).read())

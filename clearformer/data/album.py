"""Some pictures to look at: files, or so many of a labelled source, from all over it."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clearformer.data.fitting import fit_all
from clearformer.data.images import ImageSource, Picture, decode
from clearformer.data.pixels import ImageConfig
from clearformer.data.sources import evenly, require_file
from clearformer.errors import DataError


class Album(NamedTuple):
    """pixels uint8 (N, C, size, size), and what each shows, where somebody says."""

    pixels: np.ndarray
    labels: list[str]


def open_album(paths: Sequence[Path], kind: ImageSource, image: ImageConfig, n: int) -> Album:
    """At most n pictures of files and of sources read as `kind` is; what cannot be read is left out."""
    every = [picture for path in paths for picture in pictures_of(path, kind)]
    broken: list[str] = []
    found = list(fit_all(evenly(every, n), image, broken))
    if not found:
        raise DataError(f"none of {len(broken):,} pictures can be read: {broken[0]}", "look at one of them")
    return Album(np.stack([one.pixels for one in found]), [one.label for one in found])


def pictures_of(path: Path, kind: ImageSource) -> list[Picture]:
    """A single picture is told by its ending, and nobody says what it shows."""
    from PIL import Image

    if path.suffix.lower() in Image.registered_extensions():
        require_file(path)
        return [Picture(str(path), "", lambda: decode(path, str(path)))]
    return list(kind.changed(path=path).read())

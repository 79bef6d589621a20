"""Write images of Python objects to a folder, which ImageSource reads: images/<class>/000000.png.

An image is a Pillow image; an array (Y, X), (Y, X, 3) or (3, Y, X), uint8 or floats in [0, 1]; the path of a file; or
an encoded file, {"bytes": …}, as in the library datasets. Encoded files are copied unchanged, others are saved as .png.
"""

import re
import shutil
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from clearformer.data.files.columns import LABELS, first_of
from clearformer.data.images import Image
from clearformer.data.objects.rows import Rows, as_cells, describe, plain
from clearformer.errors import DataError

IMAGES = ("image", "img", "picture", "photo", "file", "path")
CLASSES = (*LABELS, "fine_label", "coarse_label", "target")
AS_PNG = ("1", "L", "LA", "P", "RGB", "RGBA", "I", "I;16")  # modes of Pillow that .png files can have


def write_images(every: Iterator[Any], rows: Rows, folder: Path) -> int:
    """Write every image to the folder of its class, and return their number. Images without labels have no class."""
    n = 0
    for n, row in enumerate(every, 1):
        where = f"{rows.kind}, row {n}"
        image, label = image_and_label(row, rows, where)
        place = folder if label is None else folder / class_folder(label, where)
        place.mkdir(parents=True, exist_ok=True)
        write_image(image, place / f"{n - 1:06}", where)
    if len({path.is_dir() for path in folder.iterdir()}) > 1:
        raise DataError(f"{rows.kind} has images with and without labels", "give all images a label, or none")
    return n


def image_and_label(row: Any, rows: Rows, where: str) -> tuple[Any, str | None]:
    """Return the image of a row and its label: of a tuple or a dictionary; an image alone has none."""
    classes = rows.classes.get("")
    if isinstance(row, Mapping) and "bytes" not in row:
        by_name = {str(name).strip().lower(): str(name) for name in row}
        image, label = first_of(IMAGES, by_name), first_of(CLASSES, by_name)
        if image is None:
            raise DataError(f"{where}: no image", f"the image is expected under one of {', '.join(IMAGES)}")
        classes = rows.classes.get(label or "", classes)
        row = (row[image], None if label is None else row[label])
    cells = as_cells(row) if isinstance(row, tuple | list) else [row]
    if not cells or len(cells) > 2:
        raise DataError(f"{where}: {describe(row)}, not an image or a tuple (image, label)", "give (image, label)")
    label = cells[1] if len(cells) == 2 else None
    return cells[0], None if label is None else str(plain(label, classes, where))


def class_folder(label: str, where: str) -> str:
    if not label.strip() or label.startswith(".") or re.search(r"[/\\\0]", label):
        raise DataError(f"{where}: `{label}` cannot be the name of a class of images", "use names without / and \\")
    return label


def write_image(image: Any, path: Path, where: str) -> None:
    if isinstance(image, Mapping):
        image = image.get("bytes") or image.get("path")
    if isinstance(image, str) or hasattr(image, "__fspath__"):
        source = Path(image)
        if not source.is_file():
            raise DataError(f"{where}: {source} does not exist", "check the path")
        shutil.copyfile(source, path.with_suffix(source.suffix))
    elif isinstance(image, bytes):
        path.with_suffix(encoded_suffix(image, where)).write_bytes(image)
    else:
        picture = image if isinstance(image, Image.Image) else from_array(image, where)
        (picture if picture.mode in AS_PNG else picture.convert("RGB")).save(path.with_suffix(".png"))


def encoded_suffix(data: bytes, where: str) -> str:
    """Return the suffix of an encoded image, by its first bytes."""
    try:
        with Image.open(BytesIO(data)) as image:
            return f".{str(image.format).lower()}"
    except Exception as error:  # a damaged file can make a decoder raise anything
        raise DataError(f"{where}: bytes that are not an image ({type(error).__name__})", "remove it") from None


def from_array(array: Any, where: str) -> Image.Image:
    """Return an array, or a tensor, as a Pillow image."""
    pixels = np.asarray(array)
    if pixels.ndim == 3 and pixels.shape[0] in (1, 3) and pixels.shape[-1] not in (1, 3):
        pixels = pixels.transpose(1, 2, 0)  # the channels come first in torch
    if pixels.ndim == 3 and pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    if pixels.dtype.kind == "f" and pixels.size and pixels.min() >= 0 and pixels.max() <= 1:
        pixels = (255 * pixels).round().astype("uint8")
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or pixels.shape[2:] not in ((), (3,)) or not pixels.size:
        what = f"values of type {pixels.dtype} and shape {pixels.shape}"
        raise DataError(
            f"{where}: {describe(array)} with {what} is not an image",
            "give uint8 values, or floats from 0 to 1, with shape (height, width) or (height, width, 3)",
        )
    return Image.fromarray(np.ascontiguousarray(pixels))

"""Labelled pictures: files to pictures, each decoded when its pixels are asked for, and not before.

ImageSource(path="photos")                        photos/<class>/*.jpg, .png and whatever else Pillow reads
ImageSource(path="album")                         album/*.jpg, without folders: all of one class, `picture`
ImageSource(path="train-images-idx3-ubyte.gz")    idx, as MNIST has it, its labels beside it: train-labels-idx1-…
ImageSource(path="digits.npz")                    arrays `images` (n, Y, X) or (n, Y, X, 3), uint8, and `labels` (n,)
ImageSource(path="train.parquet")                 columns `image`, a file's bytes, and `label`, as Hugging Face has
AlbumSource(path="pictures.npz")                  the same, where labels may be missing: `picture` again
"""

import gzip
import zlib
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from functools import partial
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from zipfile import BadZipFile

import numpy as np
from pydantic import Field

from clearformer.config import Config
from clearformer.data.corpora import Corpora
from clearformer.data.sources import require_file, some
from clearformer.errors import DataError, MachineError, suggest

try:
    from PIL import Image, ImageOps
except ModuleNotFoundError:
    raise MachineError("pictures need Pillow, which is not installed", "pip install 'clearformer[images]'") from None


UNTOLD = "picture"  # what a picture shows of which nobody says more
SEVERAL = ("idx3-ubyte", ".npz", ".parquet")  # how the names of files end that hold many pictures


class Picture(NamedTuple):
    """A picture not yet decoded: where it lies, what it shows, and how to get at it."""

    name: str
    label: str
    open: Callable[[], Image.Image]
    """Raises a DataError that names it, if it is damaged."""


class ImageSource(Config):
    """Where labelled pictures lie and how to read them."""

    needs_labels: ClassVar[bool] = True

    path: Path = Field(description="a folder of class folders, or an idx, .npz or .parquet file")
    names: tuple[str, ...] | None = Field(None, description="of the classes, where files number them from 0")
    image: str | None = Field(None, description="the array or column of pictures: images in .npz, image in .parquet")
    label: str | None = Field(None, description="the same of their labels: labels in .npz, label in .parquet")

    def read(self) -> Generator[Picture]:
        """The pictures in order. A wrong path or kind is refused at once."""
        kind = self.path.name.removesuffix(".gz")
        if self.path.is_dir():
            what = "picture, in a folder named after its class" if self.needs_labels else "picture"
            return some(self.path, read_folder(self.path), what)
        require_file(self.path)
        is_strict = self.needs_labels or self.label is not None
        if "idx3-ubyte" in kind:
            arrays = read_labelled_idx(self.path, is_strict)
        elif kind.endswith(".npz"):
            arrays = read_npz(self.path, self.image or "images", self.label or "labels", is_strict)
        elif kind.endswith(".parquet"):
            columns = read_parquet(self.path, self.image or "image", self.label or "label", is_strict)
            return some(self.path, self._named(columns, decode), "picture")
        else:
            raise DataError(
                f"{self.path}: pictures are not read from such a file",
                "name a folder with a folder for each class, or an idx3-ubyte, .npz or .parquet file",
            )
        check_arrays(self.path, *arrays)
        return some(self.path, self._named(zip(*arrays), lambda pixels, _: Image.fromarray(pixels)), "picture")

    def classes(self) -> list[str]:
        """In the order of a model's scores: the names that are given, or numbers, or else folders, in order."""
        if self.names is not None:
            return list(self.names)
        found = {picture.label for picture in self.read()}
        return sorted(found, key=lambda label: (0, int(label), "") if label.isdecimal() else (1, 0, label))

    def _named(self, rows: Iterable[tuple[Any, Any]], make: Callable[[Any, str], Image.Image]) -> Generator[Picture]:
        for i, (content, label) in enumerate(rows):
            if self.names is not None and not (str(label).isdecimal() and int(label) < len(self.names)):
                raise DataError(
                    f"{self.path} has a class {label}, and there are {len(self.names)} names",
                    "name all, in the order of their numbers; classes that have names already need no others",
                )
            name = f"{self.path}[{i}]"
            told = str(label) if self.names is None else self.names[int(label)]
            yield Picture(name, told, partial(make, content, name))


class AlbumSource(ImageSource):
    """Where pictures lie, with labels or without: enough for a network that asks for none."""

    needs_labels = False


class ImageCorpora(Corpora):
    """[data] of pictures."""

    train: ImageSource
    valid: ImageSource | None = None
    test: ImageSource | None = None

    def source(self, split: str) -> Any:
        """Classes are called in all splits as they are in training."""
        found = super().source(split)
        return found if found is None or found.names else found.changed(names=self.train.names)

    def split_of(self, place: float) -> str:
        """Where a picture of the training source belongs, by its place in [0, 1)."""
        return next(split for split in self.splits if self.edges(split)[0] <= place < self.edges(split)[1])


class AlbumCorpora(ImageCorpora):
    """[data] of an autoencoder."""

    train: AlbumSource
    valid: AlbumSource | None = None
    test: AlbumSource | None = None


def read_folder(folder: Path) -> Generator[Picture]:
    """<class>/**/*: every file that Pillow knows by its ending, in the order of names.

    A folder without folders is one class.
    """
    known = Image.registered_extensions()
    places = sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    for place, label in [(place, place.name) for place in places] or [(folder, UNTOLD)]:
        for path in sorted(place.rglob("*")):
            if path.suffix.lower() in known and not path.name.startswith("."):
                yield Picture(str(path), label, partial(decode, path, str(path)))


def decode(file: Path | bytes, name: str) -> Image.Image:
    """A path, or a file's bytes; whole and the right way up."""
    try:
        with Image.open(BytesIO(file) if isinstance(file, bytes) else file) as image:
            return plain(ImageOps.exif_transpose(image))
    except Exception as error:  # a damaged file can make a decoder raise anything
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is damaged, or no picture"
        raise DataError(f"{name} cannot be read: {reason}", "copy it again, or leave it out") from None


def plain(image: Image.Image) -> Image.Image:
    """In 8 bits: Pillow would make all greys of 16 bits above 255 white. LAB it converts to colours, not to greys."""
    if image.mode.startswith("I"):
        return Image.fromarray((np.asarray(image).clip(0, 2**16 - 1) >> 8).astype("uint8"))
    return image.convert("RGB") if image.mode == "LAB" else image


def some_images(source: ImageSource, n: int) -> tuple[int, list[Image.Image]]:
    """How many pictures there are, and about n of them that can be read, from all over the source."""
    every, found = list(source.read()), []
    for picture in every[:: max(1, len(every) // n)]:
        with suppress(DataError):
            found.append(picture.open())
    if not found:
        raise DataError(f"{source.path}: none of {len(every):,} pictures can be read", "look at one of them")
    return len(every), found


def open_image(path: Path) -> Image.Image:
    require_file(path)
    if path.name.removesuffix(".gz").endswith(SEVERAL):
        raise DataError(
            f"{path} is a file of many pictures, where one of a single picture is wanted",
            "give .png or .jpg files; such as this one go with --images, of train, evaluate and plot",
        )
    return decode(path, str(path))


def read_labelled_idx(path: Path, is_strict: bool) -> tuple[np.ndarray, np.ndarray]:
    """Labels lie beside, called as MNIST's are: train-labels-idx1-… for train-images-idx3-…"""
    images, beside = read_idx(path), path.with_name(path.name.replace("images-idx3", "labels-idx1"))
    has_labels = is_strict or (beside.exists() and beside != path)
    return images, read_idx(beside) if has_labels else np.full(len(images), UNTOLD)


def read_idx(path: Path) -> np.ndarray:
    """0, 0, 8 for bytes, the number of axes, the length of each as a big-endian int32; then the bytes themselves."""
    require_file(path)
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            data = file.read()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged ({error})", "copy or download it again") from None
    if data[:3] != b"\0\0\x08" or len(data) < 4 or len(data) < 4 + 4 * data[3]:
        raise DataError(f"{path} is not an idx file of bytes", "it should be as MNIST's files are")
    shape = np.frombuffer(data, ">i4", data[3], 4).tolist()
    body = np.frombuffer(data, "uint8", offset=4 + 4 * len(shape))
    if len(body) != prod(shape):
        raise DataError(f"{path} has {len(body):,} bytes for {shape}", "it is cut off: copy or download it again")
    return body.reshape(shape)


def read_npz(path: Path, image: str, label: str, is_strict: bool) -> tuple[np.ndarray, np.ndarray]:
    try:
        with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            for name in (image, label) if is_strict else (image,):
                if name not in file:
                    hint = f"{suggest(name, file)}; name it with `image` or `label` of the source"
                    raise DataError(f"{path} has no array `{name}`", hint)
            images = file[image]
            return images, file[label].reshape(-1) if label in file else np.full(len(images), UNTOLD)
    except (OSError, EOFError, TypeError, ValueError, BadZipFile, zlib.error) as error:  # TypeError: a single array
        raise DataError(f"{path} is damaged, or not an .npz file ({error})", "write it with numpy.savez") from None


def read_parquet(path: Path, image: str, label: str, is_strict: bool) -> Generator[tuple[bytes, Any]]:
    try:
        from pyarrow import ArrowException, parquet
    except ModuleNotFoundError:
        raise MachineError(
            f"{path}: parquet files need pyarrow, which is not installed", "pip install pyarrow"
        ) from None
    try:
        file = parquet.ParquetFile(path)
        has_labels = is_strict or label in file.schema_arrow.names
        for group in file.iter_batches(64, columns=[image, label] if has_labels else [image]):
            for row in group.to_pylist():
                content = row[image]
                yield content["bytes"] if isinstance(content, dict) else content, row[label] if has_labels else UNTOLD
    except (ArrowException, KeyError) as error:
        raise DataError(f"{path}: `{image}` and `{label}` cannot be read ({error})", "name its columns") from None


def check_arrays(path: Path, images: np.ndarray, labels: np.ndarray) -> None:
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or images.shape[3:] not in ((), (3,)):
        raise DataError(
            f"{path}: the pictures are {images.dtype} of {images.shape}",
            "they should be uint8, 0 to 255, of (n, Y, X) or (n, Y, X, 3)",
        )
    if labels.shape != images.shape[:1]:
        raise DataError(
            f"{path} has {len(images):,} pictures, and {len(labels):,} labels", "there must be one for each"
        )

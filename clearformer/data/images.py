"""Read labelled images from files. An image is decoded only when its pixels are needed.

ImageSource(path="photos")                        photos/<class>/*.jpg, .png and every other format of Pillow
ImageSource(path="album")                         album/*.jpg without subfolders: every image has the class `image`
ImageSource(path="train-images-idx3-ubyte.gz")    the idx format of MNIST, with labels in train-labels-idx1-ubyte.gz
ImageSource(path="digits.npz")                    uint8 array `images` (n, Y, X) or (n, Y, X, 3), and `labels` (n,)
ImageSource(path="train.parquet")                 columns `image` (encoded files) and `label`, as on Hugging Face
ImageSource(path="cifar/train")                   the same, in a folder saved by the library datasets
UnlabelledImageSource(path="images.npz")          the same formats; without labels, the class is `image`
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from pydantic import Field

from clearformer.data.corpora import Corpora
from clearformer.data.files.arrays import read_idx, read_npz
from clearformer.data.files.columnar import Columnar, class_names, is_dataset
from clearformer.data.files.open import open_table
from clearformer.data.files.values import column_values
from clearformer.data.source import Source
from clearformer.data.sources import list_columns, non_empty, require_file
from clearformer.errors import DataError, MachineError
from clearformer.wording import count

try:
    from PIL import Image, ImageOps
except ModuleNotFoundError:
    raise MachineError(
        "Pillow, which is required for images, is not installed", "pip install 'clearformer[images]'"
    ) from None


UNLABELLED = "image"  # the class of images without labels
MULTI_IMAGE_SUFFIXES = ("idx3-ubyte", ".npz", ".parquet")  # files that contain many images
SUPPORTED = "give a folder of images, a folder saved by the library datasets, or an idx3-ubyte, .npz or .parquet file"
OPTIONS = "--set data.train.image=NAME and --set data.train.label=NAME"
ROWS = 64  # encoded images held at a time
MAX_PIXELS = 89_478_485  # of an image: from here on, Pillow warns that it may be a decompression bomb


class ImageFile(NamedTuple):
    """An image that is not decoded yet: its name for messages, its label, and a function that decodes it."""

    name: str
    label: str
    open: Callable[[], Image.Image]
    """Raises a DataError with the name of the image if it is damaged."""


class ImageSource(Source):
    """The path of labelled images, and how to read them."""

    needs_labels: ClassVar[bool] = True

    path: Path = Field(
        description="folder with one subfolder per class, or an idx, .npz or .parquet file, or a saved dataset"
    )
    names: tuple[str, ...] | None = Field(None, description="names of the classes, for files that number them from 0")
    image: str | None = Field(
        None, description="name of the image array or column; default: `images` in .npz, `image` in .parquet"
    )
    label: str | None = Field(
        None, description="name of the label array or column; default: `labels` in .npz, `label` in .parquet"
    )

    def read(self) -> Generator[ImageFile]:
        """Stream the images in order. A wrong path or an unsupported file type raises an error at once."""
        name = self.path.name.removesuffix(".gz")
        is_strict = self.needs_labels or self.label is not None
        if is_dataset(self.path) or (name.endswith(".parquet") and self.path.is_file()):
            columns = read_columns(self.path, self.image or "image", self.label or "label", is_strict, not self.names)
            return non_empty(self.path, self._named(columns, decode), "image")
        if self.path.is_dir():
            what = "image, in a folder named after its class" if self.needs_labels else "image"
            return non_empty(self.path, read_folder(self.path), what, "--images")
        require_file(self.path)
        if "idx3-ubyte" in name:
            arrays = read_labelled_idx(self.path, is_strict)
        elif name.endswith(".npz"):
            images, labels = read_npz(self.path, self.image or "images", self.label or "labels", is_strict)
            arrays = images, np.full(len(images), UNLABELLED) if labels is None else labels
        else:
            raise DataError(f"{self.path}: unsupported file type", SUPPORTED)
        check_arrays(self.path, *arrays)
        return non_empty(self.path, self._named(zip(*arrays), lambda pixels, _: Image.fromarray(pixels)), "image")

    def classes(self) -> list[str]:
        """The classes in the order of a model's logits: `names` if set, otherwise the sorted labels, numbers first."""
        if self.names is not None:
            return list(self.names)
        labels = {image.label for image in self.read()}
        return sorted(labels, key=lambda label: (0, int(label), "") if label.isdecimal() else (1, 0, label))

    def _named(self, rows: Iterable[tuple[Any, Any]], make: Callable[[Any, str], Image.Image]) -> Generator[ImageFile]:
        for i, (content, label) in enumerate(rows):
            if self.names is not None and not (str(label).isdecimal() and int(label) < len(self.names)):
                raise DataError(
                    f"{self.path}: class {label} is not among the {count(len(self.names), 'name')} in `names`",
                    "list all classes in `names`, in the order of their numbers; if labels are names, remove `names`",
                )
            name = f"{self.path}[{i}]"
            class_name = str(label) if self.names is None else self.names[int(label)]
            yield ImageFile(name, class_name, partial(make, content, name))


class UnlabelledImageSource(ImageSource):
    """The path to images for models that need no labels, such as autoencoders; labels are optional."""

    needs_labels = False


class ImageCorpora(Corpora):
    """The [data] table of a recipe for images."""

    train: ImageSource
    valid: ImageSource | None = None
    test: ImageSource | None = None

    def source(self, split: str) -> Any:
        """Return the source of a split; if it has no `names`, it gets the names of the training data."""
        source = super().source(split)
        return source if source is None or source.names else source.changed(names=self.train.names)

    def split_of(self, place: float) -> str:
        """Return the split of a training image, given its place in [0, 1) (see split.py)."""
        return next(split for split in self.splits if self.edges(split)[0] <= place < self.edges(split)[1])


class UnlabelledImageCorpora(ImageCorpora):
    """The [data] table of a recipe for an autoencoder."""

    train: UnlabelledImageSource
    valid: UnlabelledImageSource | None = None
    test: UnlabelledImageSource | None = None


def read_folder(folder: Path) -> Generator[ImageFile]:
    """Yield the images <class>/**/* with a suffix that Pillow supports, sorted by name.

    The images of a folder without subfolders have the class UNLABELLED.
    """
    known = Image.registered_extensions()
    places = sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    for place, label in [(place, place.name) for place in places] or [(folder, UNLABELLED)]:
        for path in sorted(place.rglob("*")):
            if path.suffix.lower() in known and not path.name.startswith("."):
                yield ImageFile(str(path), label, partial(decode, path, str(path)))


def decode(
    file: Path | bytes, name: str, formats: tuple[str, ...] | None = None, most_pixels: int | None = None
) -> Image.Image:
    """Decode a file, given by its path or its bytes, completely and in the orientation of its EXIF data.

    `formats` limits the decoders, by Pillow's names. An image of more than `most_pixels`, or MAX_PIXELS, is refused by
    its header.
    """
    limit = most_pixels or MAX_PIXELS
    try:
        with Image.open(BytesIO(file) if isinstance(file, bytes) else file, formats=formats) as image:
            if image.width * image.height <= limit:
                return plain(ImageOps.exif_transpose(image))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        pass  # a warning is raised only where warnings are errors
    except Exception as error:  # a damaged file can make a decoder raise anything
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is damaged or not an image"
        raise DataError(f"{name} cannot be read: {reason}", "copy it again, or remove it") from None
    raise DataError(f"{name} has more than {count(limit, 'pixel')}", "make it smaller")


def plain(image: Image.Image) -> Image.Image:
    """Convert 16-bit greys to 8 bits, and LAB to RGB.

    Pillow would clip 16-bit greys at 255, and it cannot convert LAB to grey.
    """
    if image.mode.startswith("I"):
        return Image.fromarray((np.asarray(image).clip(0, 2**16 - 1) >> 8).astype("uint8"))
    return image.convert("RGB") if image.mode == "LAB" else image


def some_images(source: ImageSource, n: int) -> tuple[int, list[Image.Image]]:
    """Return the number of images in a source, and about n evenly spaced images; unreadable images are skipped."""
    files, images, reasons = list(source.read()), [], [""]
    for file in files[:: max(1, len(files) // n)]:
        try:
            images.append(file.open())
        except DataError as error:
            reasons.append(f": {error.message}")
    if not images:
        number = count(len(files), "image")
        raise DataError(f"{source.path} has {number}, but none can be read{reasons[-1]}", "check the files")
    return len(files), images


def open_image(path: Path) -> Image.Image:
    require_file(path)
    if path.name.removesuffix(".gz").endswith(MULTI_IMAGE_SUFFIXES):
        raise DataError(
            f"{path} contains many images, but a file with a single image is required",
            "give .png or .jpg files; train, evaluate and plot read datasets with --images",
        )
    return decode(path, str(path))


def read_labelled_idx(path: Path, is_strict: bool) -> tuple[np.ndarray, np.ndarray]:
    """Read images and labels from two files in a folder, named as in MNIST: train-images-idx3-…, train-labels-idx1-…"""
    images, label_path = read_idx(path), path.with_name(path.name.replace("images-idx3", "labels-idx1"))
    has_labels = is_strict or (label_path.exists() and label_path != path)
    return images, read_idx(label_path) if has_labels else np.full(len(images), UNLABELLED)


def read_columns(
    path: Path, image: str, label: str, is_strict: bool, is_named: bool
) -> Generator[tuple[bytes | Path, Any]]:
    """Stream encoded images and labels of a .parquet file or a saved dataset; `is_named` gives classes their names."""
    table = open_table(path)
    assert isinstance(table, Columnar)
    table.n_rows = ROWS
    with table.reading() as (schema, batches):
        has_labels = is_strict or label in schema.names
        for name in (image, label) if has_labels else (image,):
            if name not in schema.names:
                raise DataError(f"{path}: no column `{name}`", list_columns(schema.names, OPTIONS))
        classes = class_names(schema, label) if is_named else None
        for part in batches([image, label] if has_labels else [image]):
            labels = column_values(part, label, path) if has_labels else [UNLABELLED] * len(part)
            for content, number in zip(column_values(part, image, path), labels):
                yield encoded(content), number if classes is None else class_of(number, classes, path)


def class_of(number: Any, classes: Sequence[str], path: Path) -> Any:
    """Return the name of a numbered class; a missing number stays None."""
    if number is not None and not (isinstance(number, int) and 0 <= number < len(classes)):
        raise DataError(
            f"{path}: class {number!r} is not among the {count(len(classes), 'class', 'classes')} that it declares",
            "write it again, or download it again",
        )
    return None if number is None else classes[number]


def encoded(content: Any) -> bytes | Path:
    """Return an encoded file, or its path; a cell of another type becomes bytes that are no image."""
    if isinstance(content, dict):
        content = content.get("bytes") or Path(content.get("path") or "")
    return content if isinstance(content, bytes | Path) else b""


def check_arrays(path: Path, images: np.ndarray, labels: np.ndarray) -> None:
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or images.shape[3:] not in ((), (3,)):
        raise DataError(
            f"{path}: images of type {images.dtype} and shape {images.shape} are not supported",
            "store them as uint8, 0 to 255, with shape (n, height, width) or (n, height, width, 3)",
        )
    if labels.shape != images.shape[:1]:
        raise DataError(
            f"{path} has {count(len(images), 'image')} but {count(len(labels), 'label')}",
            "store exactly one label per image",
        )

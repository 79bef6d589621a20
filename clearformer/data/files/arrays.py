"""Arrays of images and labels: idx files, as of MNIST, and .npz archives of NumPy.

Arrays are held in memory. Their size is computed from the header before any of their data is read, and no more is read.
A small file with a huge array is refused: real images do not compress by a factor of MAX_RATIO.
"""

import gzip
import zlib
from math import prod
from pathlib import Path
from tokenize import TokenError
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

import numpy as np

from clearformer.data.sources import require_file
from clearformer.errors import DataError, suggest
from clearformer.wording import count

MAX_RATIO = 100
MIN_BYTES = 2**29  # a smaller array may have any ratio
MAX_AXES = 4  # image, row, column, channel
HINT = "copy or download it again"
# What damaged headers make zipfile and NumPy raise; a single array instead of an archive is a TypeError.
DAMAGED = (RuntimeError, NotImplementedError, KeyError, OverflowError, SyntaxError, MemoryError, TokenError)


def read_idx(path: Path) -> np.ndarray:
    """Read an idx file: 0, 0, 8 (for uint8), the number of axes, their sizes as big-endian int32, then the data."""
    require_file(path)
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            start = file.read(4)
            is_idx = len(start) == 4 and start[:3] == b"\0\0\x08"
            if is_idx and start[3] > MAX_AXES:
                raise DataError(f"{path}: an array of {start[3]} axes; images have 3 or 4", HINT)
            sizes = file.read(4 * start[3]) if is_idx else b""
            if not is_idx or len(sizes) < 4 * start[3]:
                raise DataError(f"{path} is not an idx file of uint8 values", "use the format of the MNIST files")
            shape = np.frombuffer(sizes, ">i4").tolist()
            n_bytes = prod(shape)
            check_size(path, n_bytes)
            body = file.read(max(0, n_bytes))
            more = file.read(1)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged ({error})", HINT) from None
    if more or len(body) != n_bytes or min(shape, default=0) < 0:
        size = f"more than {count(len(body), 'byte')}" if more else count(len(body), "byte")
        raise DataError(f"{path} has {size} of data, but shape {shape} needs {n_bytes:,}", HINT)
    return np.frombuffer(body, "uint8").reshape(shape)


def read_npz(path: Path, image: str, label: str, is_strict: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """Read two arrays of an .npz file. With `is_strict`, a missing array of labels is an error."""
    try:
        with ZipFile(path) as archive, open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
            for name in (image, label) if is_strict else (image,):
                if name not in file:
                    hint = f"set `image` and `label` in the recipe to the names of the arrays; {suggest(name, file)}"
                    raise DataError(f"{path} has no array `{name}`", hint)
            for name in (image, label):
                if name in file:
                    check_size(path, array_bytes(archive, name))
            return file[image], file[label].reshape(-1) if label in file else None
    except (
        OSError,
        EOFError,
        TypeError,
        ValueError,
        BadZipFile,
        zlib.error,
        *DAMAGED,
    ) as error:
        raise DataError(
            f"{path} is damaged, or not an .npz file ({error})", "write it with numpy.savez(path, images=…, labels=…)"
        ) from None


def array_bytes(archive: ZipFile, name: str) -> int:
    """Return the size of an array of an .npz file by its header; NumPy reads this much and no more."""
    entry = archive.getinfo(name if name in archive.namelist() else f"{name}.npy")
    if entry.compress_type not in (ZIP_STORED, ZIP_DEFLATED):  # zipfile limits what these two decompress to
        raise ValueError("a compression that NumPy does not write")
    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, kind = read(file)
    if kind.hasobject:
        raise ValueError("an array of Python objects")
    return prod(shape) * kind.itemsize


def check_size(path: Path, n_bytes: int) -> None:
    """Refuse an array that is much larger than its file."""
    if n_bytes > max(MIN_BYTES, MAX_RATIO * path.stat().st_size):
        raise DataError(
            f"{path}: an array of {n_bytes / 2**30:,.1f} GiB, more than {MAX_RATIO} times the size of the file", HINT
        )

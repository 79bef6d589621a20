"""Open files as streams of bytes, decompressed by the ending of their names: .gz, .zst, or not at all.

A stream is decompressed while it is read, a part at a time: a small file that decompresses to a huge one cannot fill
the memory. Nor can it fill the time: text that decompresses to more than MAX_RATIO times the size of its file, and to
more than MIN_BYTES, is an error.
"""

import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from clearformer.errors import DataError, MachineError

Stream = io.BufferedReader | gzip.GzipFile
ENDINGS = (".gz", ".zst")
MAX_RATIO = 200
MIN_BYTES = 2**30
PART = 2**12  # compressed bytes given to zstd at a time; they decompress to at most 128 MiB


class DamagedZstd(Exception):
    """Compressed data that zstandard cannot decompress."""


@contextmanager
def opened(path: Path, place: Callable[[], str] = lambda: "") -> Iterator[Stream]:
    """Open a file for reading, decompressed. `place()` tells errors how far it was read, such as " after line 7"."""
    try:
        with open_bytes(path) as file:
            yield file
    except EOFError:
        raise DataError(f"{path}: the compressed file is truncated{place()}", "copy or download it again") from None
    except (gzip.BadGzipFile, zlib.error, DamagedZstd) as error:
        ending = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix, path.suffix)
        raise DataError(
            f"{path} is damaged{place()}, or not a {ending} file ({error})", "copy or download it again"
        ) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror})", "check the file and its permissions") from None


def check_ratio(path: Path, file: Stream) -> None:
    """Raise an error if what was read of a compressed file is much larger than the file."""
    if path.suffix in ENDINGS and file.tell() > MIN_BYTES and file.tell() > MAX_RATIO * path.stat().st_size:
        raise DataError(
            f"{path} decompresses to more than {MIN_BYTES >> 30} GiB and {MAX_RATIO} times its size",
            "check where it comes from; if it is right, decompress it first",
        )


def open_bytes(path: Path) -> Stream:
    if path.suffix == ".gz":
        return gzip.GzipFile(path, "rb")
    if path.suffix == ".zst":
        return io.BufferedReader(ZstdReader(path))
    return open(path, "rb")


class ZstdReader(io.RawIOBase):
    """Decompresses all frames of a .zst file. A truncated frame raises an EOFError, as in gzip."""

    def __init__(self, path: Path) -> None:
        self.zstandard = import_zstandard(path)
        self.file: IO[bytes] = open(path, "rb")  # noqa: SIM115
        self.frame: Any = None
        self.data, self.position = memoryview(b""), 0

    def tell(self) -> int:
        """Return the number of decompressed bytes so far."""
        return self.position

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.data:
            rest = self.frame.unused_data if self.frame is not None and self.frame.eof else b""
            part = rest or self.file.read(PART)
            if not part:
                if self.frame is not None and not self.frame.eof:
                    raise EOFError
                return 0
            if self.frame is None or self.frame.eof:
                self.frame = self.zstandard.ZstdDecompressor().decompressobj()
            try:
                self.data = memoryview(self.frame.decompress(part))
            except self.zstandard.ZstdError as error:
                raise DamagedZstd(str(error)) from None
        n = min(len(self.data), len(buffer))
        buffer[:n] = self.data[:n]
        self.data = self.data[n:]
        self.position += n
        return n

    def close(self) -> None:
        if not self.closed:
            self.file.close()
        super().close()


def import_zstandard(path: Path) -> Any:
    try:
        import zstandard
    except ModuleNotFoundError:
        raise MachineError(
            f"{path}: reading .zst files needs the package zstandard, which is not installed",
            "pip install 'clearformer[zstd]'",
        ) from None
    return zstandard

"""Write a safetensors file whose tensors grow along their first axis, in constant memory.

In this format the header, with all sizes, precedes the data. So the tensors are first written to raw files in a
temporary folder next to the path, and joined at the end. The file appears complete or not at all.
"""

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from clearformer.checksums import note
from clearformer.disk import flush
from clearformer.errors import MachineError

CODES = {"int64": "I64", "int32": "I32", "uint16": "U16", "uint8": "U8"}


class TensorSpec(NamedTuple):
    """The data type of a tensor, and the shape of one of its rows."""

    dtype: str
    row: tuple[int, ...] = ()


class TensorFileWriter:
    """Writes a file: `append` rows to the tensors in `specs`, then `join` or `discard`. `join` writes the metadata.

    Tensors with the widest elements should come first, so that every tensor is aligned.
    """

    def __init__(self, path: Path, specs: Mapping[str, TensorSpec], metadata: Mapping[str, str] | None = None) -> None:
        self.path, self.specs, self.metadata = path, dict(specs), dict(metadata or {})
        self.counts = dict.fromkeys(specs, 0)
        with writing(path), ExitStack() as stack:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._folder = Path(stack.enter_context(TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.")))
            self._raw = {name: stack.enter_context(open(self._folder / name, "wb")) for name in specs}
            self._open = stack.pop_all()

    @property
    def is_open(self) -> bool:
        return self._folder.exists()

    def append(self, name: str, rows: np.ndarray) -> None:
        """Append rows (n, …) to a tensor; they must have the row shape in its spec."""
        spec = self.specs[name]
        assert rows.shape[1:] == spec.row, f"{name} has rows of shape {spec.row}, not {rows.shape[1:]}"
        self.counts[name] += len(rows)
        with writing(self.path):
            self._raw[name].write(rows.astype(spec.dtype, copy=False).tobytes())

    def join(self) -> None:
        """Move the finished file to its path."""
        with writing(self.path), self._open:
            for file in self._raw.values():
                file.flush()
            joined = self._folder / "joined"
            with open(joined, "wb") as file:
                file.write(self._header())
                for name in self._raw:
                    with open(self._folder / name, "rb") as raw:
                        shutil.copyfileobj(raw, file, 2**20)
                    os.remove(self._folder / name)
                file.flush()
                os.fsync(file.fileno())
            note(self.path, joined)
            os.replace(joined, self.path)
            flush(self.path.parent)

    def discard(self) -> None:
        with writing(self.path):
            self._open.close()

    def _header(self) -> bytes:
        """Return the length of the header as a little-endian uint64, then the header: JSON, padded to 8 bytes."""
        entries: dict[str, object] = {"__metadata__": self.metadata}
        start = 0
        for name, (dtype, row) in self.specs.items():
            shape = [self.counts[name], *row]
            end = start + prod(shape) * np.dtype(dtype).itemsize
            entries[name] = {"dtype": CODES[dtype], "shape": shape, "data_offsets": [start, end]}
            start = end
        text = json.dumps(entries).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError into an error message about `path`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise MachineError(f"{path}: the disk is full", "free some space, or choose another folder") from None
        raise MachineError(f"{path} cannot be written ({error.strerror})", "choose another folder") from None

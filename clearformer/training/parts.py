"""A checkpoint in several safetensors files: each rank writes its rows of every tensor.

    last.save-7.rank-0-of-2.safetensors    rows 0 … n₀ of each tensor that is sharded, and what is not sharded
    last.save-7.rank-1-of-2.safetensors    the next rows
    last.safetensors.index.json            {"save": 7, "parts": [both names], "shapes": {name: shape}, "facts": …}

The header of a part has the first row of each of its pieces. The index is written last, and the names of another save
differ: as long as an index is there, its parts are, and they belong together. `opened` reads any rows of any tensor, so
that the number of ranks may have changed; `merge` writes one ordinary file, a piece at a time.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from clearformer.checkpoint import facts_in, open_tensors, part_names, rows_of
from clearformer.errors import CheckpointError
from clearformer.small_files import read_json

CODES = {
    torch.float64: "F64", torch.int64: "I64", torch.float32: "F32", torch.int32: "I32", torch.bfloat16: "BF16",
    torch.float16: "F16", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
DTYPES = {code: dtype for dtype, code in CODES.items()}
Shape = tuple[int, ...]


class Piece(NamedTuple):
    """The rows of a tensor that one rank writes; `start` is the first, None for a tensor that is not sharded."""

    rows: Tensor
    start: int | None = None


def pieces_of(tensors: Mapping[str, Tensor], is_first: bool) -> dict[str, Piece]:
    """Return what this rank writes: its rows of each sharded tensor and, on the first rank, what all have in common."""
    pieces = {}
    for name, tensor in tensors.items():
        if hasattr(tensor, "to_local"):
            piece = Piece(tensor.to_local(), rows_of(tensor)[0])
            if piece.rows.numel() or is_first:
                pieces[name] = piece
        elif is_first:
            pieces[name] = Piece(tensor)
    return pieces


# --- writing


class Layout(NamedTuple):
    """A tensor to write: its dtype and shape, and its bytes, one piece after the other."""

    dtype: torch.dtype
    shape: Shape
    rows: Iterable[Tensor]


def write_tensors(path: Path, tensors: Mapping[str, Layout], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Write a safetensors file a piece at a time, and return its entry of checksums.json.

    The library needs all tensors of a file at once, and stops other threads while it copies them.
    """
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))  # aligned, as the library writes
    header: dict[str, Any] = {"__metadata__": {"clearformer": json.dumps(metadata)}}
    end = 0
    for name in order:
        dtype, shape, _ = tensors[name]
        begin, end = end, end + prod(shape) * dtype.itemsize
        header[name] = {"dtype": CODES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    with open(path, "wb") as file:
        for part in (len(text).to_bytes(8, "little"), text):
            digest.update(part)
            file.write(part)
        for name in order:
            for rows in tensors[name].rows:
                data: Any = rows.contiguous().flatten().view(torch.uint8).numpy()
                digest.update(data)
                file.write(data)
        n_bytes = file.tell()
    assert n_bytes == 8 + len(text) + end
    return {"bytes": n_bytes, "sha256": [digest.hexdigest()]}


def write_part(path: Path, pieces: Mapping[str, Piece]) -> dict[str, Any]:
    starts = {name: piece.start for name, piece in pieces.items() if piece.start is not None}
    layouts = {name: Layout(rows.dtype, tuple(rows.shape), [rows]) for name, (rows, _) in pieces.items()}
    return write_tensors(path, layouts, {"starts": starts})


# --- reading


class Place(NamedTuple):
    """Where some rows of a tensor are: `start` is the first of them, and `shape` the shape of the piece."""

    start: int
    shape: Shape
    file: Any

    @property
    def end(self) -> int:
        return self.start + (self.shape[0] if self.shape else 1)


class Saved:
    """A tensor in the files of a checkpoint; any of its rows can be read."""

    def __init__(self, name: str, dtype: torch.dtype, shape: Shape, places: Sequence[Place]) -> None:
        self.name, self.dtype, self.shape, self.places = name, dtype, shape, places

    def read(self, start: int = 0, stop: int | None = None) -> Tensor:
        """Return rows start … stop, all by default. A tensor without dimensions has no rows, and is returned whole."""
        if not self.shape:
            whole: Tensor = self.places[0].file.get_tensor(self.name).clone()
            return whole
        stop = self.shape[0] if stop is None else stop
        rows = [
            place.file.get_slice(self.name)[max(start, place.start) - place.start : min(stop, place.end) - place.start]
            for place in self.places
            if max(start, place.start) < min(stop, place.end)
        ]
        return torch.cat(rows) if rows else torch.empty((0, *self.shape[1:]), dtype=self.dtype)

    def pieces(self) -> Iterator[Tensor]:
        """Yield the tensor as it is stored, a piece at a time."""
        return (place.file.get_tensor(self.name) for place in self.places)


@contextmanager
def opened(path: Path) -> Iterator[tuple[dict[str, Saved], dict[str, Any]]]:
    """Open the index of a sharded checkpoint, or an ordinary file: its tensors, not read yet, and its facts."""
    if path.suffix != ".json":
        with open_tensors(path) as file:
            yield arranged([file], None, path), facts_in(file)
        return
    names = part_names(path)
    table = read_json(path)
    shapes, facts = table.get("shapes"), table.get("facts")
    if not isinstance(facts, dict) or not isinstance(shapes, dict) or not all(map(is_shape, shapes.values())):
        raise CheckpointError(f"{path} is not the index of a checkpoint", "copy the whole run folder again")
    with ExitStack() as stack:
        files = [stack.enter_context(open_tensors(path.parent / name)) for name in names]
        yield arranged(files, {name: tuple(shape) for name, shape in shapes.items()}, path), facts


def is_shape(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in value)


def arranged(files: Sequence[Any], shapes: Mapping[str, Shape] | None, where: Path) -> dict[str, Saved]:
    """Return the tensors of a checkpoint, after a check that their pieces join without gap or overlap.

    The sizes of the pieces are those of the files; what the index says of a shape is compared with them.
    """
    places: dict[str, list[Place]] = {}
    for file in files:
        starts = facts_in(file).get("starts", {})
        for name in file.keys():  # noqa: SIM118
            start = starts.get(name, 0) if isinstance(starts, dict) else None
            if not isinstance(start, int):
                raise unfit(where, name)
            places.setdefault(name, []).append(Place(start, tuple(file.get_slice(name).get_shape()), file))
    if lost := [name for name in shapes or {} if name not in places]:
        raise unfit(where, lost[0])
    saved = {}
    for name, pieces in places.items():
        pieces.sort(key=lambda piece: piece.start)
        joins = all(one.end == two.start for one, two in pairwise(pieces)) and pieces[0].start == 0
        kinds = {(piece.file.get_slice(name).get_dtype(), piece.shape[1:], len(piece.shape)) for piece in pieces}
        code, rest, _ = next(iter(kinds))
        shape = (pieces[-1].end, *rest) if pieces[0].shape else ()
        is_known = len(kinds) == 1 and code in DTYPES and (bool(shape) or len(pieces) == 1)
        if not (joins and is_known) or (shapes is not None and shapes.get(name) != shape):
            raise unfit(where, name)
        saved[name] = Saved(name, DTYPES[code], shape, pieces)
    return saved


def unfit(where: Path, name: str) -> CheckpointError:
    return CheckpointError(
        f"{where}: the pieces of `{name[:99]}` do not make the tensor that it lists", "copy the whole run folder again"
    )


def load_saved(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Load all tensors and the facts of a checkpoint, in one file or in parts."""
    with opened(path) as (saved, facts):
        return {name: tensor.read() for name, tensor in saved.items()}, facts


def merge(parts: Sequence[Path], path: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Write the tensors of all parts to one file, whatever shapes their pieces make; see `write_tensors`."""
    with ExitStack() as stack:
        saved = arranged([stack.enter_context(open_tensors(part)) for part in parts], None, path)
        layouts = {name: Layout(one.dtype, one.shape, one.pieces()) for name, one in saved.items()}
        return write_tensors(path, layouts, facts)

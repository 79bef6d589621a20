"""Tokenised text on disk, memory-mapped, so that a corpus larger than memory trains like a small one.

One safetensors file holds rows of ids laid end to end, and where each begins. Sentence pairs have two sides:

    source_offsets  (n + 1,) int64     sentence i is source[source_offsets[i] : source_offsets[i + 1]]
    target_offsets  (n + 1,) int64
    source          (sum of lengths,)  uint16 while every id fits in it, else int32; no BOS, EOS or padding
    target          (sum of lengths,)

and documents have one, `tokens`, in which each document ends with EOS. The header's metadata carries the caller's
strings (say, the tokenizer's fingerprint) next to our own mark.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

import numpy as np
from safetensors import SafetensorError, safe_open

from clearformer.data.tensor_file import Kind, TensorFileWriter
from clearformer.errors import DataError

MARK = "clearformer"  # the key of the metadata that says which kind of store this is


class Ragged(NamedTuple):
    """Rows of different lengths laid end to end: flat (sum of lengths,), lengths (B,)."""

    flat: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[Sequence[int] | np.ndarray], dtype: str = "int64") -> Self:
        lengths = np.fromiter(map(len, rows), "int64", len(rows))
        if rows and isinstance(rows[0], np.ndarray):
            return cls(np.concatenate(rows).astype(dtype), lengths)
        return cls(np.fromiter(chain.from_iterable(rows), dtype, int(lengths.sum())), lengths)


class Store:
    """A store opened for reading. Nothing is read before it is asked for, and the system forgets pages as it needs."""

    SIDES: ClassVar[tuple[str, ...]]
    KIND: ClassVar[str]
    """What the mark says: the things stored, and the version of their form."""

    def __init__(self, path: Path) -> None:
        self.path = path
        what = self.KIND.split()[0]
        try:
            # Through torch the library hands out views of the mapped file; through numpy it would copy.
            with safe_open(path, framework="pt") as file:
                self.metadata: dict[str, str] = dict(file.metadata() or {})
                if self.metadata.pop(MARK, None) != self.KIND:
                    raise DataError(f"{path} is not a store of {what}", "delete it and prepare the data again")
                tensors = [file.get_tensor(name).numpy() for name in self.tensors()]
        except FileNotFoundError:
            raise DataError(f"{path} does not exist", "prepare the data first") from None
        except (SafetensorError, OSError) as error:
            raise DataError(
                f"{path} is truncated or not a store of {what} ({error})", "delete it and prepare the data again"
            ) from None
        self._offsets, self._flat = tensors[: len(self.SIDES)], tensors[len(self.SIDES) :]

    @classmethod
    def tensors(cls) -> tuple[str, ...]:
        """The widest elements come first, so that every tensor starts at a multiple of its element's size."""
        return *(f"{side}_offsets" for side in cls.SIDES), *cls.SIDES

    def __len__(self) -> int:
        return len(self._offsets[0]) - 1


class PairStore(Store):
    """Sentences and their translations."""

    SIDES = ("source", "target")
    KIND = "pairs 1"

    @cached_property
    def lengths(self) -> np.ndarray:
        """(n, 2) int32: tokens of each source and target, without BOS and EOS."""
        return np.stack([np.diff(offsets).astype("int32") for offsets in self._offsets], axis=1)

    def rows(self, index: np.ndarray) -> tuple[Ragged, Ragged]:
        """The sources and the targets of the pairs numbered by `index` (B,), in its order."""
        source, target = (gather(flat, offsets, index) for flat, offsets in zip(self._flat, self._offsets))
        return source, target


class DocumentStore(Store):
    """Documents, each ended by EOS: one stream of tokens, and where in it each document begins."""

    SIDES = ("tokens",)
    KIND = "documents 1"

    @property
    def tokens(self) -> np.ndarray:
        """(N,): all documents end to end, a view of the mapped file."""
        return self._flat[0]

    @property
    def offsets(self) -> np.ndarray:
        """(n + 1,) int64: where each document begins, and N."""
        return self._offsets[0]

    @property
    def start_id(self) -> int:
        """What is read before the first token of a document: BOS, or the EOS of whatever came before."""
        return int(self.metadata["start"])

    def rows(self, index: np.ndarray) -> Ragged:
        """The documents numbered by `index` (B,), in its order."""
        return gather(self.tokens, self.offsets, index)


def gather(flat: np.ndarray, offsets: np.ndarray, index: np.ndarray) -> Ragged:
    """Rows of a ragged array without a loop: position j of the result lies at j plus its row's displacement."""
    starts, lengths = offsets[index], offsets[index + 1] - offsets[index]
    moved = starts - (np.cumsum(lengths) - lengths)
    return Ragged(flat[np.repeat(moved, lengths) + np.arange(lengths.sum())], lengths)


class Writer:
    """Streams rows of ids into a store, in constant memory. A writer that fails leaves nothing behind."""

    STORE: ClassVar[type[Store]]

    def __init__(self, path: Path, vocab_size: int, metadata: Mapping[str, str] | None = None) -> None:
        dtype = "uint16" if vocab_size <= 2**16 else "int32"
        kinds = {name: Kind("int64" if name.endswith("_offsets") else dtype) for name in self.STORE.tensors()}
        self._ends = dict.fromkeys(self.STORE.SIDES, 0)
        self.count = 0
        self._file = TensorFileWriter(path, kinds, {**(metadata or {}), MARK: self.STORE.KIND})
        for side in self._ends:
            self._file.append(f"{side}_offsets", np.zeros(1, "int64"))

    def _append(self, *sides: Sequence[Sequence[int] | np.ndarray]) -> None:
        assert len({len(rows) for rows in sides}) == 1, "a pair has two sides"
        self.count += len(sides[0])
        for side, ids in zip(self._ends, sides):
            rows = Ragged.of(ids, self._file.kinds[side].dtype)
            self._file.append(side, rows.flat)
            self._file.append(f"{side}_offsets", self._ends[side] + np.cumsum(rows.lengths))
            self._ends[side] += len(rows.flat)

    def _join(self) -> None:
        """Put the store in place."""
        if self.count == 0:
            self._file.discard()
            what = self.STORE.KIND.split()[0]
            raise DataError(f"{self._file.path}: there are no {what} to store", "check the corpus and its filter")
        self._file.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._file.discard()
        elif self._file.is_open:
            self._join()


class StoreWriter(Writer):
    """Streams tokenised pairs.

    with StoreWriter(path, vocab_size=10_000) as writer:
        for source_ids, target_ids in chunks:
            writer.add(source_ids, target_ids)
    store = PairStore(path)                                # or store = writer.close(), inside the block
    """

    STORE = PairStore

    def add(self, source_ids: Sequence[Sequence[int]], target_ids: Sequence[Sequence[int]]) -> None:
        """Append pairs; chunks of some thousands are fastest."""
        self._append(source_ids, target_ids)

    def close(self) -> PairStore:
        """Put the store in place and open it."""
        self._join()
        return PairStore(self._file.path)


class DocumentWriter(Writer):
    """Streams tokenised documents, each of which must end with EOS; `start_id` is what is read before a document."""

    STORE = DocumentStore

    def __init__(self, path: Path, vocab_size: int, start_id: int, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(path, vocab_size, {**(metadata or {}), "start": str(start_id)})

    def add(self, ids: Sequence[Sequence[int]]) -> None:
        """Append documents."""
        self._append(ids)

    def close(self) -> DocumentStore:
        """Put the store in place and open it."""
        self._join()
        return DocumentStore(self._file.path)

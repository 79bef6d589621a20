"""Store tokenised text on disk, memory-mapped, so that a corpus may be larger than memory.

One safetensors file holds concatenated rows of ids, and where each row begins. Sentence pairs have two sides:

    source_offsets  (n + 1,) int64     sentence i is source[source_offsets[i] : source_offsets[i + 1]]
    target_offsets  (n + 1,) int64
    source          (sum of lengths,)  uint16 if every id fits, otherwise int32; no BOS, EOS or padding
    target          (sum of lengths,)

Documents have one side, `tokens`, in which each document ends with EOS. The metadata in the file header holds the type
of the store, and strings from the caller, such as the tokenizer's fingerprint.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
from safetensors import SafetensorError, safe_open

from clearformer.data.tensor_file import TensorFileWriter, TensorSpec
from clearformer.errors import DataError

MARK = "clearformer"  # the metadata key of the type of a store
PREPARE_AGAIN = "delete it, then start the run again to prepare the data"


class Ragged(NamedTuple):
    """Rows of different lengths: `flat` (sum of lengths,) concatenates them, and `lengths` is (B,)."""

    flat: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[Sequence[int] | np.ndarray], dtype: str = "int64") -> Self:
        lengths = np.fromiter(map(len, rows), "int64", len(rows))
        if rows and isinstance(rows[0], np.ndarray):
            return cls(np.concatenate(rows).astype(dtype), lengths)
        return cls(np.fromiter(chain.from_iterable(rows), dtype, int(lengths.sum())), lengths)

    def select(self, mask: np.ndarray) -> Self:
        """Return the rows where `mask` (B,) is true."""
        if mask.all():
            return self
        return type(self)(self.flat[np.repeat(mask, self.lengths)], self.lengths[mask])

    def cut(self, length: int) -> Self:
        """Return the first `length` entries of each row."""
        place = np.arange(len(self.flat)) - np.repeat(np.cumsum(self.lengths) - self.lengths, self.lengths)
        return type(self)(self.flat[place < length], np.minimum(self.lengths, length))


class Store:
    """A store opened for reading. Data is read on access, and the operating system frees the memory when needed."""

    SIDES: ClassVar[tuple[str, ...]]
    KIND: ClassVar[str]
    """The value of MARK in the metadata: the type of the examples, and the version of the format."""
    CONTENT: ClassVar[str]
    """What messages call the examples, such as "pairs"."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # With "pt" the library returns views of the mapped file; with "np" it would copy.
            with safe_open(path, framework="pt") as file:
                self.metadata: dict[str, str] = dict(file.metadata() or {})
                if self.metadata.pop(MARK, None) != self.KIND:
                    raise DataError(f"{path} does not contain prepared {self.CONTENT}", PREPARE_AGAIN)
                tensors = [file.get_tensor(name).numpy() for name in self.tensors()]
        except FileNotFoundError:
            raise DataError(f"{path} does not exist", "start the run again to prepare the data") from None
        except (SafetensorError, OSError) as error:
            raise DataError(
                f"{path} is truncated or does not contain prepared {self.CONTENT} ({error})", PREPARE_AGAIN
            ) from None
        self._offsets, self._flat = tensors[: len(self.SIDES)], tensors[len(self.SIDES) :]

    @classmethod
    def tensors(cls) -> tuple[str, ...]:
        """Return the names of the tensors, those with the widest elements first, so that every tensor is aligned."""
        return *(f"{side}_offsets" for side in cls.SIDES), *cls.SIDES

    def __len__(self) -> int:
        return len(self._offsets[0]) - 1

    def sizes(self) -> tuple[int, tuple[int, ...]] | None:
        """The number of rows, and of ids on each side; None if offsets and ids do not belong together."""
        for offsets, flat in zip(self._offsets, self._flat):
            if offsets.ndim != 1 or flat.ndim != 1 or offsets.dtype != np.int64 or len(offsets) != len(self) + 1:
                return None
            if len(self) < 0 or offsets[0] != 0 or offsets[-1] != len(flat) or (offsets[1:] < offsets[:-1]).any():
                return None
        return len(self), tuple(map(len, self._flat))


class PairStore(Store):
    """A store of sentences and their translations."""

    SIDES = ("source", "target")
    KIND = "pairs 1"
    CONTENT = "pairs"

    @cached_property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each source and target, without BOS and EOS: (n, 2) int32."""
        return np.stack([np.diff(offsets).astype("int32") for offsets in self._offsets], axis=1)

    def rows(self, index: np.ndarray) -> tuple[Ragged, Ragged]:
        """Return the sources and the targets of the pairs with the indices `index` (B,), in this order."""
        source, target = (gather(flat, offsets, index) for flat, offsets in zip(self._flat, self._offsets))
        return source, target


class Documents(Protocol):
    """What batches of running text need of documents: a store, or the shards of a built folder."""

    path: Path

    def __len__(self) -> int: ...
    def document_at(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...

    @property
    def tokens(self) -> Any: ...
    @property
    def start_id(self) -> int: ...


class DocumentStore(Store):
    """A store of documents that end with EOS: one stream of tokens, and where each document begins."""

    SIDES = ("tokens",)
    KIND = "documents 1"
    CONTENT = "documents"

    @property
    def tokens(self) -> np.ndarray:
        """All documents concatenated, (N,): a view of the mapped file."""
        return self._flat[0]

    @property
    def offsets(self) -> np.ndarray:
        """The positions where the documents begin, followed by N: (n + 1,) int64."""
        return self._offsets[0]

    @property
    def start_id(self) -> int:
        """The input from which the first token of a document is predicted: BOS, or the EOS of the previous document."""
        return int(self.metadata["start"])

    def document_at(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of the document that each position `at` is in, and where it begins; at the end, n and N."""
        document = np.searchsorted(self.offsets, at, side="right") - 1
        return document, self.offsets[document]

    def rows(self, index: np.ndarray) -> Ragged:
        """Return the documents with the indices `index` (B,), in this order."""
        return gather(self.tokens, self.offsets, index)


def gather(flat: np.ndarray, offsets: np.ndarray, index: np.ndarray) -> Ragged:
    """Return rows of a ragged array without a loop: element j of the result is flat[j + shift of its row]."""
    starts, lengths = offsets[index], offsets[index + 1] - offsets[index]
    shifts = starts - (np.cumsum(lengths) - lengths)
    return Ragged(flat[np.repeat(shifts, lengths) + np.arange(lengths.sum())], lengths)


def id_type(vocab_size: int) -> str:
    """Return the data type in which ids are stored."""
    return "uint16" if vocab_size <= 2**16 else "int32"


class Writer:
    """Streams rows of ids into a store, in constant memory. After an error, no files are left behind."""

    STORE: ClassVar[type[Store]]

    def __init__(self, path: Path, vocab_size: int, metadata: Mapping[str, str] | None = None) -> None:
        dtype = id_type(vocab_size)
        specs = {name: TensorSpec("int64" if name.endswith("_offsets") else dtype) for name in self.STORE.tensors()}
        self._ends = dict.fromkeys(self.STORE.SIDES, 0)
        self.count = 0
        self._file = TensorFileWriter(path, specs, {**(metadata or {}), MARK: self.STORE.KIND})
        for side in self._ends:
            self._file.append(f"{side}_offsets", np.zeros(1, "int64"))

    def _append(self, *sides: Sequence[Sequence[int] | np.ndarray]) -> None:
        self._append_packed(*(Ragged.of(ids, self._file.specs[side].dtype) for side, ids in zip(self._ends, sides)))

    def _append_packed(self, *sides: Ragged) -> None:
        assert len({len(rows.lengths) for rows in sides}) == 1, "a pair has two sides"
        self.count += len(sides[0].lengths)
        for side, rows in zip(self._ends, sides):
            self._file.append(side, rows.flat)
            self._file.append(f"{side}_offsets", self._ends[side] + np.cumsum(rows.lengths))
            self._ends[side] += len(rows.flat)

    def _join(self) -> None:
        """Move the finished file to its path."""
        if self.count == 0:
            self._file.discard()
            message = f"{self._file.path}: there are no {self.STORE.CONTENT} to write"
            raise DataError(message, "check the data files, and the [data] table of the recipe")
        self._file.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._file.discard()
        elif self._file.is_open:
            self._join()


class StoreWriter(Writer):
    """Streams tokenised pairs into a store.

    with StoreWriter(path, vocab_size=10_000) as writer:
        for source_ids, target_ids in chunks:
            writer.add(source_ids, target_ids)
    store = PairStore(path)                                # or store = writer.close(), inside the block
    """

    STORE = PairStore

    def add(self, source_ids: Sequence[Sequence[int]], target_ids: Sequence[Sequence[int]]) -> None:
        """Append pairs; chunks of a few thousand are fastest."""
        self._append(source_ids, target_ids)

    def add_packed(self, source: Ragged, target: Ragged) -> None:
        """Append pairs whose ids are already in arrays of the type `id_type`."""
        self._append_packed(source, target)

    def close(self) -> PairStore:
        """Move the finished file to its path and open it."""
        self._join()
        return PairStore(self._file.path)


class DocumentWriter(Writer):
    """Streams tokenised documents into a store. Each must end with EOS; `start_id` is the input for its first token."""

    STORE = DocumentStore

    def __init__(self, path: Path, vocab_size: int, start_id: int, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(path, vocab_size, {**(metadata or {}), "start": str(start_id)})
        self.n_open = 0  # tokens of a document that is not complete

    def add(self, ids: Sequence[Sequence[int]]) -> None:
        """Append documents; the first one completes a document that was begun."""
        if ids:
            self._append(ids)
            self.n_open = 0

    def add_part(self, ids: Sequence[int]) -> None:
        """Append tokens of a document that continues."""
        self._file.append("tokens", np.array(ids, self._file.specs["tokens"].dtype))
        self._ends["tokens"] += len(ids)
        self.n_open += len(ids)

    def break_off(self) -> None:
        """End a document that continues in another store, without EOS."""
        if self.n_open:
            self._file.append("tokens_offsets", np.array([self._ends["tokens"]]))
            self.count += 1

    def close(self) -> DocumentStore:
        """Move the finished file to its path and open it."""
        self._join()
        return DocumentStore(self._file.path)

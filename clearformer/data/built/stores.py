"""Read the shards of a built folder as one store. A shard is opened, or fetched, when a row of it is needed."""

from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from clearformer.data.built.folder import (
    REBUILD,
    REMOTE,
    SHARDED,
    Index,
    read_index,
    read_lengths,
    read_pointer,
    require_built,
    require_same,
)
from clearformer.data.built.order import ShardedRows
from clearformer.data.built.remote import Remote, local_copy
from clearformer.data.store import DocumentStore, PairStore, Ragged, Store
from clearformer.data.windows import Order, shuffled
from clearformer.errors import DataError


class Shards:
    """The shards of a folder, opened as `kind` on first use."""

    def __init__(self, folder: Path, kind: type[Store]) -> None:
        self.folder, self.kind, self.index = folder, kind, read_index(folder)
        self.edges = np.concatenate([[0], np.cumsum([shard.rows for shard in self.index.shards])])
        self.opened: dict[int, Any] = {}
        self.remote = Remote.read(folder) if (folder / REMOTE).is_file() else None

    def open(self, n: int) -> Any:
        """Return the store of shard n."""
        if n not in self.opened:
            shard = self.index.shards[n]
            name = f"{shard.name}.safetensors"
            if self.remote is not None:
                self.remote.fetch(name)
            require_built(self.folder, (name,), self.index)
            store = self.kind(self.folder / name)
            if store.sizes() != (shard.rows, shard.tokens):
                raise DataError(f"{self.folder / name} does not have the rows and tokens of the index", REBUILD)
            self.opened[n] = store
        return self.opened[n]

    def prefetch(self, numbers: Iterable[int]) -> None:
        """Fetch shards in the background, if they are not here."""
        if self.remote is not None:
            for n in numbers:
                self.remote.prefetch(f"{self.index.shards[n].name}.safetensors")


class BuiltPairs:
    """The pairs of a built folder, with the interface of a PairStore."""

    def __init__(self, folder: Path) -> None:
        self.path, self.shards = folder, Shards(folder, PairStore)

    @property
    def index(self) -> Index:
        return self.shards.index

    def __len__(self) -> int:
        return self.index.n_rows

    @cached_property
    def lengths(self) -> np.ndarray:
        return read_lengths(self.path, self.index)

    def rows(self, index: np.ndarray) -> tuple[Ragged, Ragged]:
        """Return the sources and the targets of the pairs with the indices `index` (B,), in this order."""
        edges = self.shards.edges
        numbers = np.searchsorted(edges, index, side="right") - 1
        first = int(numbers[0])
        if (numbers == first).all():  # as in training: a batch is from one shard
            source, target = self.shards.open(first).rows(index - edges[first])
            return source, target
        single = [self.shards.open(int(n)).rows(np.array([i - edges[n]])) for n, i in zip(numbers, index)]
        source, target = (
            Ragged(np.concatenate([row.flat for row in side]), np.concatenate([row.lengths for row in side]))
            for side in zip(*single)
        )
        return source, target


class Joined:
    """The tokens of shards laid end to end, indexed as one array: what Windows and Streams need of a stream."""

    def __init__(self, shards: Shards) -> None:
        self.shards = shards
        self.edges = np.concatenate([[0], np.cumsum([shard.tokens[0] for shard in shards.index.shards])])

    def __len__(self) -> int:
        return int(self.edges[-1])

    def parts(self, at: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield each shard that has some of the positions `at`, a mask of these, and their positions in the shard."""
        numbers = np.searchsorted(self.edges, at, side="right") - 1
        for n in np.unique(numbers[at < len(self)]).tolist():
            here = numbers == n
            yield n, here, at[here] - self.edges[n]

    def __getitem__(self, at: Any) -> np.ndarray:
        if isinstance(at, slice):
            return self[np.arange(*at.indices(len(self)))]
        at = np.asarray(at) % len(self)  # −1 is the last token, as in numpy
        result = np.empty(at.shape, "int64")
        for n, here, inside in self.parts(at):
            result[here] = self.shards.open(n).tokens[inside]
        return result


class BuiltDocuments:
    """The documents of a built folder, with the interface of a DocumentStore.

    A very long document may continue in the next shards: `before` has the tokens of it in earlier ones.
    """

    def __init__(self, folder: Path) -> None:
        self.path, self.shards = folder, Shards(folder, DocumentStore)
        self.metadata = {"start": str(self.shards.index.tables["start"])}
        self.tokens = Joined(self.shards)
        self.before = np.array([shard.before for shard in self.shards.index.shards])
        # The number of the first document of each shard.
        self.first = self.shards.edges[:-1] - np.cumsum(self.before > 0)

    def __len__(self) -> int:
        return self.shards.index.n_rows - int((self.before > 0).sum())

    def document_at(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As in a DocumentStore, from the offsets of the shards that are needed: no memory for all documents."""
        document, begins = np.full(at.shape, len(self)), np.full(at.shape, len(self.tokens))
        for n, here, inside in self.tokens.parts(at):
            numbers, starts = self.shards.open(n).document_at(inside)
            document[here] = numbers + self.first[n]
            begins[here] = starts + self.tokens.edges[n] - np.where(numbers == 0, self.before[n], 0)
        return document, begins

    @cached_property
    def offsets(self) -> np.ndarray:
        """The positions where all documents begin, followed by N: (n + 1,) int64."""
        ends = np.cumsum(read_lengths(self.path, self.shards.index)[:, 0], dtype="int64")
        continuing = self.shards.edges[:-1][self.before > 0]  # rows, whose begins are no begins of documents
        return np.delete(np.concatenate([[0], ends]), continuing)

    @property
    def start_id(self) -> int:
        return int(self.metadata["start"])


def open_pairs(path: Path) -> PairStore | BuiltPairs:
    """Open the pairs in a file, or those of the folder that it points to."""
    folder = pointed_to(path)
    return PairStore(path) if folder is None else BuiltPairs(folder)


def open_documents(path: Path) -> Any:
    """Open the documents in a file, or those of the folder that it points to: a DocumentStore, or BuiltDocuments."""
    folder = pointed_to(path)
    return DocumentStore(path) if folder is None else BuiltDocuments(folder)


def row_order(path: Path, store: Any) -> Order:
    """Return the order of the rows of text in training.

    A run on a built folder that was begun before there was an order by shards keeps the one that it has.
    """
    pointer = read_pointer(path) if isinstance(store, BuiltDocuments) else None
    if pointer is None or pointer.order != SHARDED:
        return shuffled
    return ShardedRows(store.tokens.edges, store.shards.prefetch)


def pointed_to(path: Path) -> Path | None:
    pointer = read_pointer(path)
    if pointer is None:
        return None
    folder = pointer.folder
    if pointer.url is not None and not folder.exists():
        folder = local_copy(pointer.url)
    require_same(folder, pointer.built)
    return folder

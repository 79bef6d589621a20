"""Rows go on where they were, in an order that (seed, epoch) decides."""

from pathlib import Path

import numpy as np
import pytest
import torch

from clearformer.data.batch import IGNORE
from clearformer.data.store import DocumentStore, DocumentWriter
from clearformer.data.streams import Streams
from clearformer.errors import DataError

BOS, EOS = 1, 2
LENGTH, ROWS = 7, 3


def store_of(path: Path, documents: list[list[int]], start: int = EOS) -> DocumentStore:
    with DocumentWriter(path, 2000, start) as writer:
        writer.add([[*document, EOS] for document in documents])
        return writer.close()


@pytest.fixture
def book(tmp_path: Path) -> DocumentStore:
    """One document of 499 tokens and EOS, no token twice."""
    return store_of(tmp_path / "book", [[*range(3, 502)]])


def test_by_hand(tmp_path: Path) -> None:
    """Two streams of five tokens, two at a time; the last of each is left over."""
    streams = Streams(store_of(tmp_path / "d", [[*range(11, 20)]]), 2, 2)
    (one,), (two,) = steps = [[streams.batch(stretch) for stretch in step] for step in streams.steps(0, 1)]
    first = one.labels[0, 0].item() - 11  # where this epoch begins to cut
    assert first in (0, 1)
    begins = [11 + first, 11 + first + (10 - first) // 2]
    assert one.labels.tolist() == [[n, n + 1] for n in begins]
    assert two.labels.tolist() == [[n + 2, n + 3] for n in begins]
    assert two.tokens.tolist() == [[n + 1, n + 2] for n in begins]
    assert [batch.continues.tolist() for (batch,) in steps] == [[False, False], [True, True]]
    assert one.documents is None


@pytest.mark.parametrize("group", [1, 2])
def test_each_row_goes_on_where_the_row_of_its_block_was(book: DocumentStore, group: int) -> None:
    streams = Streams(book, LENGTH, ROWS)
    last: dict[int, torch.Tensor] = {}
    for step in streams.steps(5, group):
        assert [stretch.block for stretch in step] == list(range(group))
        for batch in map(streams.batch, step):
            assert batch.continues.all().item() == (batch.block in last)
            if batch.block in last:
                assert batch.tokens[:, 0].equal(last[batch.block])
            last[batch.block] = batch.labels[:, -1]
    seen = torch.cat([streams.batch(s).labels.flatten() for step in streams.steps(5, group) for s in step]).tolist()
    assert len(seen) == len(set(seen)) > 500 - (ROWS * group + 1) * LENGTH


def test_order_is_a_function_of_seed_and_epoch(book: DocumentStore) -> None:
    def places(seed: int, epoch: int) -> list[list[int]]:
        return [stretch.places.tolist() for (stretch,) in Streams(book, LENGTH, ROWS, seed).steps(epoch, 1)]

    assert places(0, 3) == places(0, 3)
    assert len({str(places(seed, epoch)) for seed in range(3) for epoch in range(5)}) > 3


def test_the_whole_text_is_one_stream(book: DocumentStore) -> None:
    streams = Streams(book, LENGTH, ROWS)
    batches = list(streams.read())
    labels = torch.cat([batch.labels for batch in batches], dim=1)
    assert labels[labels != IGNORE].tolist() == book.tokens.tolist()
    assert [batch.continues.tolist() for batch in batches] == [[False]] + [[True]] * (len(batches) - 1)
    assert [batch.n_tokens for batch in batches] == [streams.count(stretch) for stretch in streams.whole()]
    assert sum(batch.n_tokens for batch in batches) == 500


def test_a_document_begins_anew_unless_it_is_joined(tmp_path: Path) -> None:
    """Documents of three and five tokens with EOS, read two at a time: the second begins in the middle of a batch."""
    store = store_of(tmp_path / "d", [[11, 12], [13, 14, 15, 16]], BOS)
    batches = list(Streams(store, 2, 1).read())
    assert [batch.continues.tolist() for batch in batches] == [[False], [True], [True], [True]]
    assert batches[1].tokens.tolist() == [[12, BOS]]
    assert batches[1].positions.tolist() == [[0, 0]]
    exact = list(Streams(store_of(tmp_path / "e", [[11], [12, 13]], BOS), 2, 1).read())
    assert [batch.continues.tolist() for batch in exact] == [[False], [False], [True]]
    joined = list(Streams(store_of(tmp_path / "f", [[11], [12, 13]]), 2, 1, joined=True).read())
    assert [batch.continues.tolist() for batch in joined] == [[False], [True], [True]]
    assert all(batch.documents is None for batch in joined)


def test_too_little_text_is_said(book: DocumentStore) -> None:
    assert len(Streams(book, 100, 5).steps(0, 1)) == 1
    with pytest.raises(DataError, match="500 tokens do not fill 10 rows of 100"):
        Streams(book, 100, 5).steps(0, 2)


def test_batches_are_counted_without_being_read(book: DocumentStore) -> None:
    streams = Streams(book, LENGTH, ROWS)
    for (stretch,) in streams.steps(0, 1):
        assert streams.count(stretch) == streams.batch(stretch).n_tokens == LENGTH * ROWS
        assert isinstance(stretch.places, np.ndarray)

"""The first part of every document is given, the second asked for; where the border lies is drawn, and repeatable."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from clearformer.data.batch import IGNORE, TextBatch
from clearformer.data.prefixes import PrefixWindows
from clearformer.data.store import DocumentStore, DocumentWriter
from clearformer.data.windows import Windows

BOS, EOS = 1, 2
LENGTH, ROWS = 13, 5


def store_of(path: Path, lengths: list[int]) -> DocumentStore:
    """Documents of so many tokens, EOS included; no other token occurs twice."""
    words = np.split(np.arange(3, 3 + sum(lengths)), np.cumsum(lengths)[:-1])
    with DocumentWriter(path, 5000, BOS) as writer:
        writer.add([[*part[:-1].tolist(), EOS] for part in words])
        return writer.close()


@pytest.fixture
def store(tmp_path: Path) -> DocumentStore:
    return store_of(tmp_path / "d", np.random.default_rng(3).integers(2, 23, 83).tolist())


def pieces(batch: TextBatch) -> list[tuple[list[int], list[bool]]]:
    """Of each document in each row: its labels and which of its tokens are the prefix."""
    found = []
    for row in range(len(batch)):
        ids = torch.zeros_like(batch.tokens[row]) if batch.documents is None else batch.documents[row]
        for number in ids.unique():
            own = ids == number
            found.append((batch.labels[row][own].tolist(), batch.context[row][own].tolist()))  # type: ignore[index]
    return found


def test_what_the_prefix_shows_is_not_asked_for_and_all_else_is(store: DocumentStore) -> None:
    """n tokens are the prefix; the label of the last of them is the first word that none of them shows."""
    windows, plain = PrefixWindows(store, LENGTH, ROWS), Windows(store, LENGTH, ROWS)
    for places in windows.epoch(0):
        batch, whole = windows.batch(places), plain.batch(places)
        assert batch.tokens.equal(whole.tokens)
        for (labels, prefix), (every, _) in zip(pieces(batch), pieces(replace(whole, context=batch.context))):
            n = sum(prefix)
            assert prefix == [True] * n + [False] * (len(prefix) - n)
            assert 1 <= n <= len(labels)
            assert labels == [IGNORE] * (n - 1) + every[n - 1 :]
        assert batch.n_tokens == windows.count(places) == int((batch.labels != IGNORE).sum())


def test_every_length_is_as_likely_as_any_other(tmp_path: Path) -> None:
    """χ² over 11 lengths of 1,100 documents: 29.6 is passed by chance once in a thousand times."""
    n_documents, length = 1100, 11
    windows = PrefixWindows(store_of(tmp_path / "d", [length] * n_documents), length * 10, 7, seed=3)
    counts = np.zeros(length)
    for places in windows.whole():
        for _, prefix in pieces(windows.batch(places)):
            counts[sum(prefix) - 1] += 1
    assert counts.sum() == n_documents
    assert ((counts - n_documents / length) ** 2 / (n_documents / length)).sum() < 29.6


def test_a_row_is_drawn_alike_whatever_is_beside_it(store: DocumentStore) -> None:
    windows, places = PrefixWindows(store, LENGTH, ROWS, seed=5), np.array([7, 31, 2])
    assert windows.batch(places).context is not None
    for row, place in enumerate(places):
        alone = windows.batch(np.array([place]))
        assert alone.labels[0].equal(windows.batch(places).labels[row])
    other = PrefixWindows(store, LENGTH, ROWS, seed=7)
    assert not other.batch(places).labels.equal(windows.batch(places).labels)


@pytest.mark.parametrize("joined", [False, True])
def test_what_lies_past_the_end_is_nobodys_prefix(tmp_path: Path, joined: bool) -> None:
    windows = PrefixWindows(store_of(tmp_path / "d", [3, 4]), 11, 1, joined=joined)
    for seed in range(29):
        windows.seed = seed
        batch = windows.batch(np.array([0]))
        assert batch.context is not None
        assert not batch.context[0, 7:].any()
        assert batch.n_tokens >= (1 if joined else 2)
        assert batch.context[0, 0]
        assert joined or batch.context[0, 3]  # where the second begins

"""Batches of a few fixed shapes: every pair once, every batch in its shape, as little padding as possible."""

from itertools import combinations

import numpy as np
import pytest
import torch

from clearformer.data.batch import IGNORE
from clearformer.data.buckets import BucketBatches, bucket_lengths
from clearformer.data.collate import pad_batch
from clearformer.data.store import Ragged


def lengths(n: int = 701, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    source = rng.integers(1, 31, n)
    return np.stack([source, np.maximum(1, source + rng.integers(-3, 4, n))], axis=1)


def waste(lengths: np.ndarray, edges: tuple[int, ...]) -> int:
    padded = np.array(edges)[np.searchsorted(edges, lengths)]
    return int((padded - lengths).sum())


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_bucket_lengths_waste_the_least(n: int) -> None:
    frequencies = [0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05]
    some = np.random.default_rng(7).choice([2, 3, 5, 7, 11, 13, 17, 19], 97, p=frequencies)
    values = np.unique(some).tolist()
    best = min(waste(some, (*edges, values[-1])) for edges in combinations(values[:-1], n - 1))
    edges = bucket_lengths(some, n)
    assert len(edges) == n
    assert edges == sorted(edges)
    assert edges[-1] == values[-1]
    assert waste(some, tuple(edges)) == best


def test_few_lengths_are_their_own_buckets() -> None:
    assert bucket_lengths(np.array([7, 3, 3, 7]), 12) == [3, 7]


@pytest.mark.parametrize("tokens", [64, 257, 1024])
def test_every_pair_occurs_once_in_a_batch_of_few_shapes(tokens: int) -> None:
    batches = BucketBatches(lengths(), tokens, seed=3)
    for epoch in (0, 1):
        rows = batches.epoch(epoch)
        assert sorted(np.concatenate(rows).tolist()) == list(range(701))
        shapes = [batches.shape(some) for some in rows]
        assert len(set(shapes)) <= 12
        for some, (n_rows, length) in zip(rows, shapes):
            assert len(some) <= n_rows
            assert n_rows * length <= max(tokens, length)
            assert batches.lengths[some].max() <= length
        assert batches.fill(epoch) > 0.7
        n_positions = 2 * sum(n_rows * length for n_rows, length in shapes)
        assert batches.padding(epoch) == pytest.approx(1 - batches.lengths.sum() / n_positions)


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    def order(seed: int, epoch: int) -> list[list[int]]:
        return [some.tolist() for some in BucketBatches(lengths(), 256, seed).epoch(epoch)]

    assert order(1, 2) == order(1, 2)
    assert order(1, 2) != order(1, 3)
    assert order(1, 2) != order(2, 2)


def test_the_order_of_batches_does_not_depend_on_the_number_of_ranks() -> None:
    batches = BucketBatches(lengths(), 64, seed=3)
    flat = [some.tolist() for step in batches.steps(0, 3) for some in step]
    assert flat[: len(batches.epoch(0))] == [some.tolist() for some in batches.epoch(0)]


def test_a_pair_longer_than_the_budget_is_a_batch() -> None:
    batches = BucketBatches(np.array([[5, 5], [99, 3]]), 32)
    assert sorted(batches.shape(rows) for rows in batches.epoch(0)) == [(1, 100), (5, 6)]


def test_blank_rows_count_for_nothing() -> None:
    source, target = Ragged.of([[5, 6, 7], [8]]), Ragged.of([[9], [5, 6]])
    plain, fixed = (pad_batch(source, target, 0, 1, 2, shape) for shape in (None, (3, 7)))
    assert fixed.source.shape == fixed.target.shape == fixed.labels.shape == (3, 7)
    assert fixed.n_tokens == plain.n_tokens == 5
    assert torch.equal(fixed.source[:2, :4], plain.source)
    assert torch.equal(fixed.source_mask[:2, :4], plain.source_mask)
    assert torch.equal(fixed.target[:2, :3], plain.target)
    assert torch.equal(fixed.labels[:2, :3], plain.labels)
    assert not fixed.source_mask[:2, 4:].any()
    assert fixed.source_mask[2].tolist() == [True] + [False] * 6  # EOS alone: attention needs a key
    assert (fixed.labels[2] == IGNORE).all()
    assert (fixed.labels != IGNORE).sum() == 5

"""Padding by hand; plans that are complete, within budget, repeatable and tight."""

import gzip
from itertools import count
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest

from clearformer.data.batch import IGNORE
from clearformer.data.collate import TokenBatches, pad_batch, pad_source
from clearformer.data.pairs import read_pairs
from clearformer.data.store import PairStore, Ragged, StoreWriter

PAD, BOS, EOS = 0, 1, 2
CORPORA = Path(__file__).parents[3] / "shared" / "data"


def random_lengths(n: int, seed: int = 0, longest: int = 61) -> np.ndarray:
    rng = np.random.default_rng(seed)
    source = rng.integers(1, longest, n)
    return np.stack([source, np.clip(source + rng.integers(-7, 8, n), 0, None)], axis=1).astype("int32")


def test_a_batch_worked_by_hand() -> None:
    batch = pad_batch(Ragged.of([[5, 6, 7], [8]]), Ragged.of([[9], [10, 11]]), PAD, BOS, EOS)
    assert batch.source.tolist() == [[5, 6, 7, EOS], [8, EOS, PAD, PAD]]
    assert batch.source_mask.tolist() == [[True, True, True, True], [True, True, False, False]]
    assert batch.target.tolist() == [[BOS, 9, PAD], [BOS, 10, 11]]
    assert batch.labels.tolist() == [[9, EOS, IGNORE], [10, 11, EOS]]
    assert batch.n_tokens == 5 == int((batch.labels != IGNORE).sum())


def test_an_empty_side_is_bos_and_eos_alone() -> None:
    batch = pad_batch(Ragged.of([[], [4]]), Ragged.of([[], []]), PAD, BOS, EOS)
    assert batch.source.tolist() == [[EOS, PAD], [4, EOS]]
    assert batch.target.tolist() == [[BOS], [BOS]]
    assert batch.labels.tolist() == [[EOS], [EOS]]


def test_decoding_pads_the_source_alone() -> None:
    source, mask = pad_source(Ragged.of([[3], [4, 5]]), PAD, EOS)
    assert source.tolist() == [[3, EOS, PAD], [4, 5, EOS]]
    assert mask.tolist() == [[True, True, False], [True, True, True]]


def test_padding_cannot_tell_the_stored_type(tmp_path: Path) -> None:
    """uint16 on disk must not leak: IGNORE is negative."""
    with StoreWriter(tmp_path / "p", 17) as writer:
        writer.add([[5], [6, 7, 8]], [[9, 10], [11]])
    batch = pad_batch(*PairStore(tmp_path / "p").rows(np.array([1, 0])), PAD, BOS, EOS)
    assert {str(tensor.dtype) for tensor in (batch.source, batch.target, batch.labels)} == {"torch.int64"}
    assert batch.labels.tolist() == [[11, EOS, IGNORE], [9, 10, EOS]]


@pytest.mark.parametrize("tokens", [1, 67, 257, 2048])
@pytest.mark.parametrize("n", [1, 2, 997])
def test_every_pair_once_and_within_budget(n: int, tokens: int) -> None:
    lengths = random_lengths(n, seed=n)
    for epoch in range(3):
        batches = TokenBatches(lengths, tokens, seed=5).epoch(epoch)
        assert np.array_equal(np.sort(np.concatenate(batches)), np.arange(n))
        for batch in batches:
            assert len(batch) == 1 or len(batch) * (lengths[batch].max() + 1) <= tokens


def test_batches_are_as_large_as_the_budget_allows() -> None:
    """Rows of one length: 256 tokens hold 256 // (6 + 1) = 36 of them."""
    sizes = sorted(len(batch) for batch in TokenBatches(np.full((100, 2), 6), 256).epoch(0))
    assert sizes == [28, 36, 36]


def test_a_pair_beyond_the_budget_is_a_batch_of_its_own() -> None:
    lengths = np.array([[3, 3], [3, 500], [3, 3]])
    batches = TokenBatches(lengths, 101).epoch(0)
    assert [1] in [batch.tolist() for batch in batches]
    assert sum(map(len, batches)) == 3


def test_the_plan_is_a_function_of_seed_and_epoch() -> None:
    lengths = random_lengths(499)

    def plan(seed: int, epoch: int) -> list[list[int]]:
        return [batch.tolist() for batch in TokenBatches(lengths, 521, seed).epoch(epoch)]

    assert plan(3, 2) == plan(3, 2)
    assert plan(3, 2) != plan(3, 1)
    assert plan(3, 2) != plan(2, 2)
    assert {frozenset(batch) for batch in plan(3, 2)} != {frozenset(batch) for batch in plan(3, 1)}


def test_batch_order_does_not_follow_length() -> None:
    lengths = random_lengths(4999)
    means = [lengths[batch].mean() for batch in TokenBatches(lengths, 1021).epoch(0)]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3


@pytest.mark.parametrize("group", [1, 2, 3, 7, 1000])
def test_steps_are_full_and_miss_nothing(group: int) -> None:
    plan = TokenBatches(random_lengths(211), 257, seed=3)
    batches, steps = plan.epoch(1), plan.steps(1, group)
    assert {len(step) for step in steps} == {group}
    flat = [batch.tolist() for step in steps for batch in step]
    assert flat[: len(batches)] == [batch.tolist() for batch in batches]
    assert flat[len(batches) :] == flat[: len(flat) - len(batches)]
    assert len(flat) - len(batches) < group


def test_padding_and_fill_worked_by_hand() -> None:
    """One batch of 2 rows: (3 + 5) * 2 = 16 positions, of which 3 + 4 + 2 + 5 = 14 are real; the budget is 2 * 11."""
    plan = TokenBatches(np.array([[2, 3], [1, 4]]), 11)
    assert plan.padding() == pytest.approx(2 / 16)
    assert plan.fill() == pytest.approx(14 / 22)


def test_plan_agrees_with_padded_batches() -> None:
    lengths = random_lengths(211)
    plan = TokenBatches(lengths, 521)
    real = positions = 0
    for index in plan.epoch(0):
        sides = [Ragged.of([[7] * n for n in lengths[index, side]]) for side in (0, 1)]
        batch = pad_batch(*sides, PAD, BOS, EOS)
        real += int(batch.source_mask.sum()) + batch.n_tokens
        positions += batch.source.numel() + batch.labels.numel()
    assert plan.padding() == pytest.approx(1 - real / positions)


def lengths_of(path: Path | tuple[Path, Path]) -> np.ndarray:
    for file in path if isinstance(path, tuple) else (path,):
        if not file.exists():
            pytest.skip(f"{file.name} is not here")
    return np.array([[len(side.split()) for side in example] for example in read_pairs(path)], "int32")


@pytest.mark.data
@pytest.mark.parametrize(("tokens", "bar"), [(2048, 0.03), (4096, 0.05)])
@pytest.mark.parametrize("corpus", ["multi30k", "tatoeba"])
def test_real_corpora_are_padded_little(corpus: str, tokens: int, bar: float) -> None:
    """Multi30k in 10,000 BPE pieces, Tatoeba in words; every epoch must pass, not the average."""
    pieces = CORPORA / "multi30k" / "revisit-mmt-bpe" / "en-de"
    path = (pieces / "train.en.gz", pieces / "train.de.gz")
    lengths = lengths_of(path if corpus == "multi30k" else CORPORA / "tatoeba-eng-fra" / "fra.txt.gz")
    plan = TokenBatches(lengths, tokens)
    start = perf_counter()
    plan.epoch(0)
    assert perf_counter() - start < 0.5
    for epoch in range(5):
        assert plan.padding(epoch) < bar
        assert plan.fill(epoch) > 0.85


@pytest.mark.data
def test_multi30k_from_files_to_batches(tmp_path: Path) -> None:
    """The whole room: read, number the pieces, store, plan, pad; every token arrives once."""
    pieces = CORPORA / "multi30k" / "revisit-mmt-bpe" / "en-de"
    if not pieces.exists():
        pytest.skip("Multi30k is not here")
    vocabulary: dict[str, int] = {}
    numbers = count(3)

    def encode(text: str) -> list[int]:
        return [vocabulary[p] if p in vocabulary else vocabulary.setdefault(p, next(numbers)) for p in text.split()]

    examples = list(read_pairs((pieces / "valid.en.gz", pieces / "valid.de.gz")))
    with StoreWriter(tmp_path / "valid", 2**16) as writer:
        writer.add([encode(e.source) for e in examples], [encode(e.target) for e in examples])
    store = PairStore(tmp_path / "valid")
    plan = TokenBatches(store.lengths, 4096)
    batches = [pad_batch(*store.rows(index), PAD, BOS, EOS) for index in plan.epoch(0)]
    assert sum(map(len, batches)) == len(examples) == 1014
    with gzip.open(pieces / "valid.de.gz", "rt", encoding="utf-8", newline="\n") as file:
        assert sum(batch.n_tokens for batch in batches) == sum(len(line.split()) + 1 for line in file)

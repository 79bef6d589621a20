"""The order of text in a built folder: every row once an epoch, found for any step without planning the rest."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clearformer
from clearformer.bundled.corpus import generate
from clearformer.data import lazy
from clearformer.data.built import documents
from clearformer.data.built.folder import INDEX, POINTER, read_lengths, read_pointer, use_built, write_pointer
from clearformer.data.built.order import WINDOW, MixedRows, ShardedRows
from clearformer.data.built.stores import BuiltDocuments, open_documents, row_order
from clearformer.data.store import MARK
from clearformer.data.streams import Streams
from clearformer.data.tensor_file import TensorFileWriter
from clearformer.data.windows import Windows, shuffled
from clearformer.errors import Paused
from clearformer.training.distributed import World
from clearformer.training.feed import Steps

LENGTH, ROWS = 7, 5
SMALL = ["model.n_layers=1", "model.d_model=8", "model.d_ff=8", "model.n_heads=1", "model.max_length=31"]
SMALL += ["train.tokens=62", "train.validate_every=9", "train.save_every=9", "train.ema=0"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text of some twenty shards."""
    at = tmp_path_factory.mktemp("text")
    texts = [pair.english for pair in generate(300)]
    (at / "lines.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "SHARD_CHARS", 500)
        clearformer.build_data(at / "built", text=at / "lines.jsonl", vocab_size=300)
    return at / "built"


@pytest.fixture
def store(folder: Path) -> BuiltDocuments:
    return BuiltDocuments(folder)


def windows(store: BuiltDocuments, seed: int = 0, **options: Any) -> Windows:
    return Windows(store, LENGTH, ROWS, seed, order=ShardedRows(store.tokens.edges), **options)


def places(source: Windows, epoch: int) -> list[int]:
    return np.concatenate(list(source.epoch(epoch))).tolist()


def test_an_epoch_has_the_rows_of_a_plain_store_in_another_order(store: BuiltDocuments) -> None:
    assert len(store.shards.index.shards) > 3 * WINDOW
    for epoch in range(3):
        ours, theirs = places(windows(store, 3), epoch), places(Windows(store, LENGTH, ROWS, 3), epoch)
        assert sorted(ours) == sorted(theirs)
        assert ours != theirs
        assert ours != sorted(ours)
        assert [len(batch) for batch in windows(store, 3).epoch(epoch)[:-1]] == [ROWS] * (len(ours) // ROWS)


def test_the_order_is_a_function_of_seed_and_epoch(store: BuiltDocuments) -> None:
    assert places(windows(store, 3), 5) == places(windows(store, 3), 5)
    assert len({tuple(places(windows(store, seed), epoch)) for seed, epoch in ((3, 5), (3, 7), (5, 5))}) == 3


def test_rows_of_few_shards_are_mixed(store: BuiltDocuments) -> None:
    """Their shards are near each other in the epoch: no more than WINDOW of them, and the next, are read at a time."""
    order = places(windows(store), 1)
    shards = np.searchsorted(store.tokens.edges, order, side="right") - 1
    first = shards[: len(order) // len(store.shards.index.shards)]
    assert 1 < len(set(first.tolist())) <= WINDOW
    last = {n: int(np.flatnonzero(shards == n).max()) for n in set(shards.tolist())}
    begun = [int(np.flatnonzero(shards == n).min()) for n in last]
    assert all(sum(a <= at <= b for a, b in zip(begun, last.values())) <= WINDOW for at in range(len(order)))


@pytest.mark.parametrize("length", [1, 7, 211, 3001])
def test_rows_longer_than_a_shard_are_rows_too(store: BuiltDocuments, length: int) -> None:
    source = Windows(store, length, 2, order=ShardedRows(store.tokens.edges))
    assert sorted(places(source, 0)) == sorted(places(Windows(store, length, 2), 0))
    assert len(store.tokens) > 3001


def test_filled_batches_have_one_shape(store: BuiltDocuments) -> None:
    batches = list(windows(store, filled=True).epoch(1))
    assert {len(batch) for batch in batches} == {ROWS}
    real = np.concatenate(batches)
    assert real[real < len(store.tokens)].tolist() == places(windows(store), 1)


def test_a_step_is_found_without_planning_the_epoch(store: BuiltDocuments, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the rows of its window of shards are numbered, and only the shards of its rows are opened."""
    reference = [[batch.tolist() for batch in step] for step in windows(store).steps(4, 2)]
    computed, shuffle = list[int](), MixedRows._window

    def counted(rows: MixedRows, number: int) -> np.ndarray:
        computed.append(number)
        return shuffle(rows, number)

    monkeypatch.setattr(MixedRows, "_window", counted)
    monkeypatch.setattr(np, "arange", limited(np.arange, len(store.tokens) // LENGTH // 2))
    source = windows(store)
    steps = source.steps(4, 2)
    assert len(steps) == len(reference)
    assert computed == []
    for at in (len(steps) - 3, 1, len(steps) // 2):
        computed.clear()
        assert [batch.tolist() for batch in steps[at]] == reference[at]
        assert len(computed) <= 2  # at the edge of a window
    assert not store.shards.opened
    source.batch(steps[1][0])
    assert len(store.shards.opened) <= ROWS + 1
    assert "offsets" not in vars(store)


def limited(function: Any, most: int) -> Any:
    def checked(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        assert len(result) < most, "an array of all rows"
        return result

    return checked


def test_streams_are_found_without_planning_the_epoch(store: BuiltDocuments, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, item = list[int](), lazy.Lazy.__getitem__

    def counted(steps: lazy.Lazy, i: Any) -> Any:
        asked.append(i)
        return item(steps, i)

    monkeypatch.setattr(lazy.Lazy, "__getitem__", counted)
    source = Steps(Streams(store, LENGTH, ROWS), group=2)
    last = source.count(3) - 1
    (first, second), _ = source.load(3, last, World())
    assert asked == [last]
    assert (first.block, second.block) == (0, 1)
    assert first.n_tokens == LENGTH * ROWS


def test_shards_that_follow_are_fetched_ahead(store: BuiltDocuments) -> None:
    asked = list[list[int]]()
    source = Windows(store, LENGTH, ROWS, order=ShardedRows(store.tokens.edges, lambda shards: asked.append([*shards])))
    order = places(source, 0)
    here = [set((np.searchsorted(store.tokens.edges, order[:9], side="right") - 1).tolist())]
    assert all(n + 1 in asked[0] or n + 1 == len(store.shards.index.shards) for n in here[0])
    assert len(asked) == -(-len(store.shards.index.shards) // WINDOW)
    assert max(map(max, asked)) < len(store.shards.index.shards)


@pytest.mark.parametrize("joined", [False, True])
def test_batches_are_those_of_one_store(store: BuiltDocuments, tmp_path: Path, joined: bool) -> None:
    """Documents are found in their shards as in one list of offsets, past the end of the stream too."""
    from clearformer.data.store import DocumentWriter

    lengths = np.diff(store.offsets)
    assert np.array_equal(lengths, read_lengths(store.path, store.shards.index)[:, 0])
    with DocumentWriter(tmp_path / "one", 300, store.start_id) as writer:
        writer.add(np.split(store.tokens[:], store.offsets[1:-1]))
        whole = writer.close()
    at = np.arange(len(whole.tokens) + 3)
    assert all(map(np.array_equal, store.document_at(at), whole.document_at(at)))
    for kind in (Windows, Streams):
        ours, theirs = (kind(source, 13, 4, joined=joined) for source in (store, whole))
        for (mine,), (other,) in zip(ours.steps(1, 1), theirs.steps(1, 1), strict=True):
            batch, expected = ours.batch(mine), theirs.batch(other)
            for name, value in vars(expected).items():
                assert (
                    (getattr(batch, name) == value)
                    if not hasattr(value, "equal")
                    else value.equal(getattr(batch, name))
                )
        assert sum(1 for _ in ours.read()) == sum(1 for _ in theirs.read())


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("kind", [Windows, Streams])
def test_batches_are_the_same_on_one_two_and_four_ranks(store: BuiltDocuments, kind: Any, ranks: int) -> None:
    source = Steps(windows(store, 5) if kind is Windows else Streams(store, LENGTH, ROWS, 5), group=4)
    for i in (0, 3, source.count(1) - 1):
        alone, count = source.load(1, i, World())
        together = [source.load(1, i, World(rank, ranks)) for rank in range(ranks)]
        assert {n for _, n in together} == {count}
        parts = [batch for part, _ in together for batch in part]
        assert sorted(batch.tokens.tolist() for batch in parts) == sorted(batch.tokens.tolist() for batch in alone)


@pytest.mark.parametrize("model", ["gpt", "lstm"])
def test_a_run_continues_at_any_position(folder: Path, tmp_path: Path, model: str) -> None:
    """In the first epoch, and in the second: the same weights as without a pause."""
    settings = [s for s in SMALL if model == "gpt" or s.startswith("train")]
    settings += [] if model == "gpt" else ["model.d_model=8", "model.n_layers=1", "data.length=31"]
    settings += ["train.tokens=620"]
    run = tmp_path / "run"
    whole = clearformer.train(text=folder, model=model, out=tmp_path / "whole", steps=19, settings=settings)
    with pytest.raises(Paused):
        clearformer.train(text=folder, model=model, out=run, steps=19, settings=[*settings, "train.pause=2"])
    with pytest.raises(Paused):
        clearformer.train(out=run, resume=True, settings=["train.pause=16"])
    report = clearformer.train(out=run, resume=True, settings=["train.pause=1000"])
    assert report["valid"] == whole["valid"]
    weights = [(at / "model.safetensors").read_bytes() for at in (tmp_path / "whole", run)]
    assert weights[0] == weights[1]
    pointer = read_pointer(run / "data" / "train.safetensors")
    assert pointer is not None
    assert pointer.order


def test_a_run_that_was_begun_before_keeps_its_order(folder: Path, tmp_path: Path) -> None:
    """Its pointer names no order: all rows are shuffled at once, as they were."""
    write_pointer(tmp_path / "new", folder)
    TensorFileWriter(tmp_path / "old", {}, {MARK: POINTER, "folder": str(folder)}).join()
    store = open_documents(tmp_path / "new")
    assert isinstance(row_order(tmp_path / "new", store), ShardedRows)
    assert row_order(tmp_path / "old", open_documents(tmp_path / "old")) is shuffled
    use_built(folder, tmp_path / "data")
    valid = tmp_path / "data" / "valid.safetensors"
    assert row_order(valid, open_documents(valid)) is shuffled
    rng = np.random.default_rng((3, 5))
    first = rng.integers(LENGTH)
    expected = rng.permutation(np.arange(first, len(store.tokens) - LENGTH + 1, LENGTH))
    assert places(Windows(store, LENGTH, ROWS, 3), 5) == expected.tolist()
    assert (folder / INDEX).exists()

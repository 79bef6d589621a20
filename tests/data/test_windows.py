"""Every token is a label once, read after its own document only, in an order that (seed, epoch) decides."""

from pathlib import Path

import numpy as np
import pytest
import torch

from clearformer.data.batch import IGNORE, TextBatch
from clearformer.data.store import DocumentStore, DocumentWriter
from clearformer.data.text import TextSource, store_text
from clearformer.data.windows import Windows
from clearformer.errors import DataError
from clearformer.text import TextConfig, train_tokenizer

SHAKESPEARE = Path(__file__).parents[2].parent / "shared" / "data" / "tinyshakespeare" / "input.txt"
BOS, EOS = 1, 2
LENGTH, ROWS = 7, 3


def store_of(path: Path, documents: list[list[int]], start: int = EOS, vocab_size: int = 101) -> DocumentStore:
    with DocumentWriter(path, vocab_size, start) as writer:
        writer.add([[*document, EOS] for document in documents])
        return writer.close()


@pytest.fixture
def documents() -> list[list[int]]:
    """83 documents of 1 to 22 tokens, no token twice: a token tells where it came from."""
    lengths = np.random.default_rng(5).integers(1, 23, 83)
    return [part.tolist() for part in np.split(np.arange(3, 3 + lengths.sum()), np.cumsum(lengths)[:-1])]


@pytest.fixture
def store(tmp_path: Path, documents: list[list[int]]) -> DocumentStore:
    return store_of(tmp_path / "d", documents, vocab_size=2000)


def test_by_hand(tmp_path: Path) -> None:
    windows = Windows(store_of(tmp_path / "d", [[11, 12], [13], [14, 15, 16]], BOS), 5, 2)
    (places,) = windows.whole()
    batch = windows.batch(places)
    assert batch.tokens.tolist() == [[BOS, 11, 12, BOS, 13], [BOS, 14, 15, 16, BOS]]
    assert batch.labels.tolist() == [[11, 12, EOS, 13, EOS], [14, 15, 16, EOS, IGNORE]]
    assert batch.documents is not None
    assert batch.positions is not None
    assert batch.documents.tolist() == [[0, 0, 0, 1, 1], [2, 2, 2, 2, 3]]
    assert batch.positions.tolist() == [[0, 1, 2, 0, 1], [0, 1, 2, 3, 0]]
    assert batch.n_tokens == windows.count(places) == 9
    again = windows.batch(np.array([1]))  # from inside a document
    assert again.tokens.tolist() == [[11, 12, BOS, 13, BOS]]
    assert again.positions is not None
    assert again.positions.tolist() == [[0, 1, 0, 1, 0]]


def test_after_eos_it_is_gpt2s_stream(tmp_path: Path) -> None:
    store = store_of(tmp_path / "d", [[11, 12], [13], [14, 15, 16]])
    batch = Windows(store, 9, 1).batch(np.array([0]))
    assert batch.labels[0].tolist() == store.tokens.tolist()
    assert batch.tokens[0].tolist() == [EOS, *store.tokens[:-1].tolist()]


def test_rows_of_one_document_need_no_description(tmp_path: Path) -> None:
    windows = Windows(store_of(tmp_path / "d", [[*range(3, 30)]]), LENGTH, ROWS)  # 28 labels, 4 rows
    for places in windows.whole():
        batch = windows.batch(places)
        assert (batch.documents, batch.positions) == (None, None)
        assert batch.tokens.shape == batch.labels.shape == (len(places), LENGTH)
        assert batch.tokens.dtype == batch.labels.dtype == torch.int64


def test_in_order_every_token_is_counted_once(store: DocumentStore) -> None:
    windows = Windows(store, LENGTH, ROWS)
    batches = [windows.batch(places) for places in windows.whole()]
    labels = torch.cat([batch.labels.flatten() for batch in batches])
    assert labels[labels != IGNORE].tolist() == store.tokens.tolist()
    assert sum(batch.n_tokens for batch in batches) == len(store.tokens)
    assert all(batch.n_tokens == int((batch.labels != IGNORE).sum()) for batch in batches)
    assert all(len(batch) == ROWS for batch in batches[:-1])


@pytest.mark.parametrize("epoch", range(5))
def test_an_epoch_predicts_every_token_once_between_its_edges(store: DocumentStore, epoch: int) -> None:
    windows = Windows(store, LENGTH, ROWS, seed=3)
    places = np.concatenate(windows.epoch(epoch))
    seen = np.sort((places[:, None] + np.arange(LENGTH)).ravel())
    assert (np.diff(seen) == 1).all()  # once each, without a gap
    assert seen[0] < LENGTH
    assert seen[-1] >= len(store.tokens) - LENGTH
    batches = [windows.batch(rows) for rows in windows.epoch(epoch)]
    assert all(
        batch.n_tokens == len(batch) * LENGTH == windows.count(rows)
        for batch, rows in zip(batches, windows.epoch(epoch))
    )
    labels = torch.cat([batch.labels.flatten() for batch in batches])
    assert sorted(labels.tolist()) == sorted(store.tokens[seen].tolist())


def test_filled_batches_have_one_shape_and_the_same_labels(store: DocumentStore) -> None:
    plain, filled = (Windows(store, LENGTH, ROWS, seed=3, filled=is_filled) for is_filled in (False, True))
    assert len(plain.epoch(1)[-1]) < ROWS  # the comparison is not trivial
    assert {len(places) for places in filled.epoch(1)} == {ROWS}
    for ours, theirs in zip(filled.epoch(1), plain.epoch(1), strict=True):
        batch, expected = filled.batch(ours), plain.batch(theirs)
        assert batch.labels[: len(theirs)].equal(expected.labels)
        assert batch.tokens[: len(theirs)].equal(expected.tokens)
        assert (batch.labels[len(theirs) :] == IGNORE).all()
        assert filled.count(ours) == plain.count(theirs) == batch.n_tokens
    assert [len(places) for places in filled.whole()] == [len(places) for places in plain.whole()]


def test_nothing_is_read_from_another_document(store: DocumentStore, documents: list[list[int]]) -> None:
    home = {token: number for number, document in enumerate(documents) for token in document}
    windows = Windows(store, LENGTH, ROWS)
    for places in windows.epoch(1):
        batch = windows.batch(places)
        if batch.documents is None or batch.positions is None:
            continue
        for tokens, labels, ids, positions in zip(
            batch.tokens.tolist(), batch.labels.tolist(), batch.documents.tolist(), batch.positions.tolist()
        ):
            begun: dict[int, int] = {}
            for t, (token, label, number, position) in enumerate(zip(tokens, labels, ids, positions)):
                assert position == t - begun.setdefault(number, t)
                assert home.get(token, number) == number  # EOS, where a document begins, is nobody's
                assert home.get(label, number) == number


def test_the_order_is_a_function_of_seed_and_epoch(store: DocumentStore) -> None:
    def order(seed: int, epoch: int) -> list[int]:
        return np.concatenate(Windows(store, LENGTH, ROWS, seed).epoch(epoch)).tolist()

    assert order(3, 5) == order(3, 5)
    assert len({tuple(order(*pair)) for pair in ((3, 5), (3, 7), (5, 5))}) == 3
    assert len({min(order(3, epoch)) for epoch in range(31)}) == LENGTH  # every edge is drawn


def test_steps_fill_the_last_group_from_the_start(store: DocumentStore) -> None:
    windows = Windows(store, LENGTH, ROWS)
    batches, steps = windows.epoch(2), windows.steps(2, 4)
    assert [len(step) for step in steps] == [4] * -(-len(batches) // 4)
    flat = [rows.tolist() for step in steps for rows in step]
    assert flat == [batches[i % len(batches)].tolist() for i in range(len(flat))]


def test_the_text_comes_back_from_the_windows(tmp_path: Path) -> None:
    text = "KING:\n  Who's there?\n\nQUEEN:\n\tNay, answer me.\n" * 3
    tokenizer = train_tokenizer([text], TextConfig(kind="byte-bpe", vocab_size=283, whitespace="keep", strict=False))
    windows = Windows(store_text([text, text[5:]], tokenizer, tmp_path / "d"), 13, 2)
    labels = np.concatenate([windows.batch(places).labels.numpy().ravel() for places in windows.whole()])
    labels = labels[labels != IGNORE]
    assert tokenizer.decode([labels.tolist()]) == [text + text[5:]]
    assert (labels == tokenizer.eos_id).sum() == 2


@pytest.mark.skipif(not SHAKESPEARE.exists(), reason="needs ../shared/data/tinyshakespeare")
@pytest.mark.data
@pytest.mark.parametrize(("kind", "size"), [("char", 101), ("byte-bpe", 503)])
def test_shakespeare_comes_back_byte_for_byte(tmp_path: Path, kind: str, size: int) -> None:
    source = TextSource(path=SHAKESPEARE)
    config = TextConfig(kind=kind, vocab_size=size, whitespace="keep", min_frequency=1)
    tokenizer = train_tokenizer(source.read(), config)
    windows = Windows(store_text(source.read(), tokenizer, tmp_path / "d"), 256, 64)
    labels = np.concatenate([windows.batch(places).labels.numpy().ravel() for places in windows.whole()])
    (text,) = tokenizer.decode([labels[labels != IGNORE].tolist()])
    assert text.encode() == SHAKESPEARE.read_bytes()


def test_a_corpus_of_one_window_and_one_of_less(tmp_path: Path) -> None:
    exact = Windows(store_of(tmp_path / "a", [[*range(3, 9)]]), LENGTH, ROWS)
    assert [rows.tolist() for rows in exact.epoch(0)] == [[0]]
    short = Windows(store_of(tmp_path / "b", [[*range(3, 8)]]), LENGTH, ROWS)
    with pytest.raises(DataError, match=r"6 tokens do not fill one window of 7 tokens\nhint: .*smaller data.length"):
        short.epoch(0)
    batch: TextBatch = short.batch(short.whole()[0])  # enough to evaluate on
    assert batch.n_tokens == 6
    assert batch.tokens.tolist() == [[EOS, 3, 4, 5, 6, 7, EOS]]


def test_large_vocabularies(tmp_path: Path) -> None:
    windows = Windows(store_of(tmp_path / "d", [[100_000, 65_536]], vocab_size=100_001), 3, 1)
    assert windows.batch(np.array([0])).labels.tolist() == [[100_000, 65_536, EOS]]


def test_joined_documents_look_back_at_those_before(tmp_path: Path) -> None:
    """As the Penn Treebank's lines do: the same tokens and labels, but nothing hides one line from the next."""
    store = store_of(tmp_path / "d", [[11, 12], [13], [14, 15, 16]], BOS)
    apart, joined = (Windows(store, 5, 2, joined=joined) for joined in (False, True))
    (places,) = joined.whole()
    batch, other = joined.batch(places), apart.batch(places)
    assert batch.tokens.tolist() == [[BOS, 11, 12, EOS, 13], [EOS, 14, 15, 16, BOS]]
    assert batch.labels.tolist() == other.labels.tolist() == [[11, 12, EOS, 13, EOS], [14, 15, 16, EOS, IGNORE]]
    assert batch.documents is batch.positions is None
    assert other.documents is not None
    assert batch.n_tokens == other.n_tokens == 9

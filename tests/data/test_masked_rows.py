"""Rows for BERT and RoBERTa: what is in them, and how often."""

import json
from pathlib import Path

import numpy as np
import pytest

from clearformer.data.batch import IGNORE
from clearformer.data.masked_rows import (
    FOLLOWS,
    RANDOM,
    FullSentences,
    MaskedRows,
    SentencePairs,
    fit,
    side_by_side,
    word_starts,
)
from clearformer.data.masking import MaskingConfig
from clearformer.data.sentences import Sentences, store_sentences
from clearformer.data.store import Ragged
from clearformer.errors import DataError
from clearformer.text import TextConfig, Tokenizer, train_tokenizer

N_DOCUMENTS, N_SENTENCES = 97, 5
# Document d has the sentences "d3 w s0" … "d3 w s4": each word says where it is from.
BOOK = ["\n".join(f"d{d} w{d % 7} s{s}" for s in range(N_SENTENCES)) for d in range(N_DOCUMENTS)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(BOOK, TextConfig(kind="word", min_frequency=1, extra=("[MASK]",)))


@pytest.fixture(scope="module")
def sentences(tokenizer: Tokenizer, tmp_path_factory) -> Sentences:
    return kept(BOOK, tokenizer, tmp_path_factory.mktemp("s"))


def kept(documents: list[str], tokenizer: Tokenizer, folder: Path) -> Sentences:
    return Sentences(store_sentences(documents, tokenizer, folder / "s.safetensors"), tokenizer.eos_id)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_full_sentences_are_framed_and_stay_in_their_document(sentences: Sentences, tokenizer: Tokenizer) -> None:
    form = FullSentences(sentences, tokenizer, 9)
    laid = form.assemble(np.arange(len(form.lengths)), rng())
    assert (laid.lengths == form.lengths).all()
    assert laid.segments is laid.classes is None
    seen = []
    for row, n in zip(laid.tokens, laid.lengths):
        assert (row[0], row[n - 1]) == (tokenizer.bos_id, tokenizer.eos_id)
        assert (row[n:] == tokenizer.pad_id).all()
        words = tokenizer.decode([row.tolist()])[0].split()
        assert len({word for word in words if word.startswith("d")}) == 1
        seen += words
    assert seen == " ".join(BOOK).split()


def test_pairs_follow_half_of_the_time_and_else_come_from_another_document(
    sentences: Sentences, tokenizer: Tokenizer
) -> None:
    form = SentencePairs(sentences, tokenizer, 3 + 3 * N_SENTENCES)
    assert len(form.lengths) == N_DOCUMENTS
    classes, cuts, others = [], [], []
    for seed in range(41):
        laid = form.assemble(np.arange(N_DOCUMENTS), rng(seed))
        classes.append(laid.classes)
        for row, segment, kind, n in zip(laid.tokens, laid.segments, laid.classes, laid.lengths):
            a, b = (tokenizer.decode([row[segment == s].tolist()])[0].split() for s in (0, 1))
            assert (segment[n:] == 0).all()
            assert a[2] == "s0"
            cuts.append(len(a) // 3)
            if kind == FOLLOWS:
                assert b[0] == a[0]
                assert b[2] == f"s{len(a) // 3}"
                assert b[-1] == f"s{N_SENTENCES - 1}"
            else:
                assert b[0] != a[0]
                others.append(int(b[2][1:]))
            assert len({word for word in b if word.startswith("d")}) == 1
    n = 41 * N_DOCUMENTS
    n_random = int((np.concatenate(classes) == RANDOM).sum())
    assert (n_random - n / 2) ** 2 / (n / 4) < 23.9  # χ² of one degree: once in a million
    for drawn, n_kinds in ((np.bincount(cuts)[1:], N_SENTENCES - 1), (np.bincount(others), N_SENTENCES)):
        expected = drawn.sum() / n_kinds
        assert len(drawn) == n_kinds
        assert ((drawn - expected) ** 2 / expected).sum() < 33  # of four degrees: once in a million


def test_one_document_finds_its_strangers_elsewhere_in_it(tokenizer: Tokenizer, tmp_path: Path) -> None:
    sentences = kept(["\n".join(BOOK)], tokenizer, tmp_path)
    form = SentencePairs(sentences, tokenizer, 3 + 3 * 4)
    numbers = np.arange(len(form.rows))
    laid = form.assemble(numbers, rng(7))
    for number in numbers[laid.classes == RANDOM]:
        row, segment = laid.tokens[number], laid.segments[number]
        a, b = (tokenizer.decode([row[segment == s].tolist()])[0].split() for s in (0, 1))
        assert not {(b[0], b[2])} & {(x, z) for x, z in zip(a[::3], a[2::3])}


def test_what_is_too_long_is_cut_at_its_end_the_longer_first() -> None:
    n_a, n_b = fit(np.array([3, 9, 9, 2, 5]), np.array([4, 2, 9, 30, 5]), 9)
    assert n_a.tolist() == [3, 7, 5, 2, 5]
    assert n_b.tolist() == [4, 2, 4, 7, 4]


def test_long_pairs_fit(tokenizer: Tokenizer, tmp_path: Path) -> None:
    documents = ["\n".join(" ".join(f"d{d}" for _ in range(11)) for _ in range(3)) for d in range(5)]
    form = SentencePairs(kept(documents, tokenizer, tmp_path), tokenizer, 13)
    laid = form.assemble(np.arange(len(form.rows)), rng())
    assert laid.lengths.tolist() == [13] * len(form.rows)
    assert (laid.tokens[:, -1] == tokenizer.eos_id).all()


def test_parts_lie_side_by_side() -> None:
    table, lengths, places = side_by_side([[1], Ragged.of([[5, 6], []]), [2, 3], Ragged.of([[7], [8, 9]])], 0)
    assert table.tolist() == [[1, 5, 6, 2, 3, 7], [1, 2, 3, 8, 9, 0]]
    assert lengths.tolist() == [6, 5]
    assert [place.tolist() for place in places] == [[0, 0], [1, 1], [3, 1], [5, 3]]


def test_hidden_words_are_a_function_of_the_generator(sentences: Sentences, tokenizer: Tokenizer) -> None:
    rows = MaskedRows(FullSentences(sentences, tokenizer, 17), tokenizer, MaskingConfig())
    numbers = np.arange(len(rows.lengths))
    one, same, other = (rows.batch(numbers, rng(seed)) for seed in (1, 1, 2))
    assert one.tokens.equal(same.tokens)
    assert not one.labels.equal(other.labels)
    assert one.n_tokens == int((one.labels != IGNORE).sum())
    assert one.mask.sum(1).tolist() == rows.lengths.tolist()
    special = np.isin(one.tokens.numpy(), [tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id])
    assert (one.labels.numpy()[special] == IGNORE).all()


@pytest.mark.parametrize("form", [FullSentences, SentencePairs])
def test_fixed_masks_belong_to_the_row(form: type, sentences: Sentences, tokenizer: Tokenizer) -> None:
    """Neither the epoch nor the rows beside it change the versions of a row; there are as many as the setting says."""
    rows = MaskedRows(form(sentences, tokenizer, 13), tokenizer, MaskingConfig(fixed_masks=3))
    seen: dict[int, set[tuple[tuple[int, ...], ...]]] = {}
    for seed in range(61):
        numbers = rng(1000 + seed).permutation(len(rows.lengths))[:7]  # other rows, so other widths of the batch
        batch = rows.batch(numbers, rng(seed))
        assert batch.labels is not None
        for number, tokens, labels, mask in zip(numbers.tolist(), batch.tokens, batch.labels, batch.mask):
            version = tuple(tokens[mask].tolist()), tuple(labels[mask].tolist())
            seen.setdefault(number, set()).add(version)
    assert max(map(len, seen.values())) == 3
    assert len({len(tokens) for versions in seen.values() for tokens, _ in versions}) > 1
    fresh = MaskedRows(rows.row_format, tokenizer, MaskingConfig())
    drawn = {tuple(fresh.batch(np.array([0]), rng(seed)).labels.flatten().tolist()) for seed in range(31)}  # type: ignore[union-attr]
    assert len(drawn) > 10


def test_fixed_masks_have_the_same_rates(sentences: Sentences, tokenizer: Tokenizer) -> None:
    rows = MaskedRows(FullSentences(sentences, tokenizer, 17), tokenizer, MaskingConfig(rate=0.3, fixed_masks=10))
    batch = rows.batch(np.arange(len(rows.lengths)), rng())
    assert batch.labels is not None
    text = ~np.isin(batch.tokens.numpy(), [tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id])
    chosen = (batch.labels != IGNORE).numpy()
    n = int(text.sum())
    assert chosen.sum() / n == pytest.approx(0.3, abs=4 * (0.3 * 0.7 / n) ** 0.5)
    masked = (batch.tokens.numpy()[chosen] == tokenizer.mask_id).mean()
    assert masked == pytest.approx(0.8, abs=4 * (0.8 * 0.2 / chosen.sum()) ** 0.5)


@pytest.mark.parametrize(
    ("kind", "begins"),
    [("wordpiece", ["play", "the", "."]), ("byte-bpe", ["▁play", "▁the", "▁"]), ("bpe", ["▁play", "▁the"])],
)
def test_the_spelling_tells_where_words_begin(kind: str, begins: list[str]) -> None:
    line = "the playing played the play. the ing ed"
    config = TextConfig(kind=kind, vocab_size=300 if kind == "byte-bpe" else 60, strict=False, min_frequency=1)
    tokenizer = train_tokenizer([line] * 7, config)
    starts, pieces = word_starts(tokenizer), tokenizer.pieces(range(tokenizer.vocab_size))
    for i, piece in enumerate(pieces[4:], 4):
        assert starts[i] == (not piece.startswith("##") if kind == "wordpiece" else piece.startswith("▁")), piece
    assert {pieces[i] for i in np.flatnonzero(starts)} >= set(begins)


def test_hashes_of_a_byte_level_vocabulary_are_hashes(tmp_path: Path) -> None:
    """GPT-2 and RoBERTa have an entry ##, which goes on from nothing."""
    entries = ["#", "a", "b", "Ġ", "##", "Ġa", "Ġb", "ab", "<s>", "</s>", "<mask>"]
    (tmp_path / "vocab.json").write_text(json.dumps({entry: i for i, entry in enumerate(entries)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n# #\nĠ a\nĠ b\na b\n")
    tokenizer = Tokenizer.from_folder(tmp_path)
    starts = word_starts(tokenizer)
    assert {entries[i] for i in np.flatnonzero(starts)} == {"Ġ", "Ġa", "Ġb", "<s>", "</s>", "<mask>"}
    assert tokenizer.specials_around(is_pair=True) == [[8], [9, 9], [9]]  # <s> a </s></s> b </s>


def test_whole_words_are_hidden_together(tmp_path: Path) -> None:
    text = "\n".join(f"the player plays {'playing ' * (i % 3)}well" for i in range(61))
    config = TextConfig(kind="wordpiece", vocab_size=31, strict=False, min_frequency=1, extra=("[MASK]",))
    tokenizer = train_tokenizer(text.splitlines(), config)
    form = FullSentences(kept([text], tokenizer, tmp_path), tokenizer, 23)
    batch = MaskedRows(form, tokenizer, MaskingConfig(rate=0.4), whole_word=True).batch(
        np.arange(len(form.lengths)), rng()
    )
    assert batch.labels is not None
    chosen, starts = (batch.labels != IGNORE).numpy(), word_starts(tokenizer)
    whole = np.where(batch.labels == IGNORE, batch.tokens, batch.labels)
    inside = ~starts[whole][:, 1:]  # a piece that goes on from the one before
    assert inside.sum() > 100
    assert (chosen[:, 1:] == chosen[:, :-1])[inside].all()


def test_rows_that_cannot_be_are_refused(sentences: Sentences, tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="rows of 2 tokens are too short for 2 special tokens") as caught:
        FullSentences(sentences, tokenizer, 2)
    assert caught.value.hint == "set data.length to at least 3"
    with pytest.raises(DataError, match="rows of 4 tokens are too short for 3 special tokens and at least 2"):
        SentencePairs(sentences, tokenizer, 4)
    with pytest.raises(DataError, match="no document has two sentences"):
        SentencePairs(kept(["d1 w1 s1", "d2 w2 s2"], tokenizer, tmp_path), tokenizer, 11)
    with pytest.raises(DataError, match="one row contains all 5 sentences"):
        SentencePairs(kept(BOOK[:1], tokenizer, tmp_path), tokenizer, 100)
    plain = train_tokenizer(BOOK, TextConfig(kind="word", min_frequency=1))
    with pytest.raises(DataError, match="no mask token"):
        MaskedRows(FullSentences(sentences, tokenizer, 9), plain, MaskingConfig())

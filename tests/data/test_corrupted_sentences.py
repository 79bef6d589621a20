from pathlib import Path

import numpy as np
import pytest

from clearformer.data.corrupted_sentences import CHANGED, CorruptedSentences
from clearformer.data.sentences import Sentences, store_sentences
from clearformer.errors import DataError
from clearformer.text import TextConfig, Tokenizer, train_tokenizer

# "a" is seven times as frequent as "b", "c" and "d" in what is drawn from; the rows are sentences of five words.
TEXT = "\n".join(["v w x y z"] * 30 + ["a a a a a a a b c d"] * 100)


def made(
    text: str, folder: Path, length: int = 23, kind: str = "word", **fields
) -> tuple[CorruptedSentences, Tokenizer]:
    config = TextConfig(kind=kind, min_frequency=1, vocab_size=fields.pop("vocab_size", 100), strict=False)
    tokenizer = train_tokenizer(text.splitlines(), config)
    sentences = Sentences(store_sentences([text], tokenizer, folder / "s.safetensors"), tokenizer.eos_id)
    return CorruptedSentences(sentences, tokenizer, length, **fields), tokenizer


def drawn(
    slips: CorruptedSentences, tokenizer: Tokenizer, rows: np.ndarray, n_seeds: int
) -> list[tuple[int, list[str]]]:
    found = []
    for seed in range(n_seeds):
        batch = slips.batch(rows, np.random.default_rng(seed))
        assert batch.classes is not None
        texts = tokenizer.decode(batch.tokens.tolist())
        found += [(kind, text.split()) for kind, text in zip(batch.classes.tolist(), texts)]
    return found


def test_half_are_changed_by_one_word_anywhere(tmp_path: Path) -> None:
    slips, tokenizer = made(TEXT, tmp_path)
    real = ["v", "w", "x", "y", "z"]
    rows = drawn(slips, tokenizer, np.arange(30), 67)
    changed = [words for kind, words in rows if kind == CHANGED]
    assert all(words == real for kind, words in rows if kind != CHANGED)
    shorter, exchanged = ([words for words in changed if len(words) == n] for n in (4, 5))
    assert len(shorter) + len(exchanged) == len(changed)
    n = len(rows)
    assert (len(changed) - n / 2) ** 2 / (n / 4) < 23.9  # χ² of one degree: once in a million
    assert (len(shorter) - len(changed) / 2) ** 2 / (len(changed) / 4) < 23.9
    places = np.bincount([next(i for i, (a, b) in enumerate(zip([*w, ""], real)) if a != b) for w in shorter])
    assert ((places - places.mean()) ** 2 / places.mean()).sum() < 33  # of four degrees
    for words in exchanged:
        assert sum(a != b for a, b in zip(words, real)) == 1
    put = [a for words in exchanged for a, b in zip(words, real) if a != b]
    by_frequency = np.array([put.count(word) for word in "abcd"])
    expected = by_frequency.sum() * np.array([0.7, 0.1, 0.1, 0.1])
    assert ((by_frequency - expected) ** 2 / expected).sum() < 31  # of three degrees


def test_words_of_several_pieces_are_exchanged_whole(tmp_path: Path) -> None:
    text = "\n".join(["the player plays well"] * 7 + ["a man sees players playing"] * 7)
    slips, tokenizer = made(text, tmp_path, 61, "wordpiece", vocab_size=40)
    known = {*text.split()}
    assert max(map(len, tokenizer.encode(list(known)))) > 1
    for kind, words in drawn(slips, tokenizer, np.arange(14), 11):
        assert set(words) <= known
        assert (" ".join(words) in text.splitlines()) == (kind != CHANGED)


def test_the_generator_alone_decides_and_long_sentences_are_cut(tmp_path: Path) -> None:
    slips, _ = made(TEXT, tmp_path, length=6)
    one, same, other = (slips.batch(np.arange(130), np.random.default_rng(seed)) for seed in (5, 5, 6))
    assert one.tokens.equal(same.tokens)
    assert not one.tokens.equal(other.tokens)
    assert one.tokens.size(1) == 6
    assert slips.lengths.max() == 6
    assert one.n_tokens == 130


def test_a_single_word_is_never_left_out(tmp_path: Path) -> None:
    slips, tokenizer = made("one\ntwo\nthree", tmp_path, deleted=1.0)
    assert all(len(words) == 1 for _, words in drawn(slips, tokenizer, np.arange(3), 9))


def test_a_text_of_one_word_is_refused(tmp_path: Path) -> None:
    slips, _ = made("one\none\none", tmp_path)
    with pytest.raises(DataError, match="too few different words"):
        slips.batch(np.arange(3), np.random.default_rng(0))

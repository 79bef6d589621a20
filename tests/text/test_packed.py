"""Ids looked up word by word are the ids of the whole texts."""

from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearformer.text import TextConfig, Tokenizer, train_tokenizer
from clearformer.text.packed import PackedEncoder, is_word_by_word

LINES = ["The dog’s café, 12 km away ...", "लड़के ने कहा", "<eos> a▁b  c", "naïve\u00a0co\u0301té", "हिन्दी का पाठ"] * 3
KINDS = {
    "bpe": {},
    "bpe lower": {"lowercase": True},
    "bpe NFKC": {"normalization": "NFKC"},
    "unigram": {},
    "byte-bpe": {},
}
WHOLE = {"char": {}, "word": {}, "wordpiece": {}, "byte-bpe keep": {"whitespace": "keep"}}


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    def train(name: str, options: dict) -> Tokenizer:
        config = TextConfig(kind=name.split()[0], vocab_size=300, min_frequency=1, strict=False, **options)
        return train_tokenizer(iter(LINES), config)

    return {name: train(name, options) for name, options in (KINDS | WHOLE).items()}


def check(tokenizer: Tokenizer, texts: list[str], encoder: PackedEncoder | None = None) -> None:
    flat, lengths = (encoder or PackedEncoder(tokenizer, "uint16"))(texts)
    rows = tokenizer.encode(texts)
    assert flat.tolist() == [*chain.from_iterable(rows)]
    assert lengths.tolist() == [*map(len, rows)]
    assert flat.dtype == "uint16"


@pytest.mark.parametrize("kind", KINDS | WHOLE)
def test_which_tokenizers_encode_word_by_word(tokenizers, kind: str) -> None:
    assert is_word_by_word(tokenizers[kind]) == (kind in KINDS)
    check(tokenizers[kind], [*LINES, "", " ", "  two  spaces "])
    check(tokenizers[kind], [])


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=200, deadline=None)
@given(
    texts=st.lists(
        st.lists(
            st.sampled_from([*" \t\u00a0\u2028▁\u0301\u200d\ufeff\x00éÉǅﬁ①क़ा<>.12ab", "the", "¨", "<eos>"]) | st.text()
        )
        .map("".join)
        .filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text))
    )
)
def test_any_text_equals_the_sum_of_its_words(tokenizers, kind: str, texts: list[str]) -> None:
    check(tokenizers[kind], texts)


def test_a_full_dictionary_changes_nothing(tokenizers) -> None:
    encoder = PackedEncoder(tokenizers["bpe"], "uint16", max_words=5)
    for line in LINES:
        check(tokenizers["bpe"], [line, "dog lion"], encoder)
        assert len(encoder.known) <= 5 + 8


def test_a_token_that_is_matched_across_words_forbids_it() -> None:
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as Rust

    rust = Rust.from_str(train_tokenizer(iter(LINES), TextConfig(vocab_size=100, strict=False)).to_json())
    rust.add_tokens([AddedToken("New York", special=False)])
    tokenizer = Tokenizer(rust.to_str())
    assert not is_word_by_word(tokenizer)
    check(tokenizer, ["in New York now"])

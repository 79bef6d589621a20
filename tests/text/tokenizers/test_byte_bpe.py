import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearformer.errors import TokenizerError
from clearformer.text import TextConfig, train_tokenizer
from clearformer.text.normalize import clean

TOKENIZER = train_tokenizer(
    ["the cat, the cats", "बिल्ली बिल्ली"], TextConfig(kind="byte-bpe", vocab_size=283, strict=False)
)

PLAY = "KING:\n  Who's there?\n\nQUEEN:\n\tNay,  answer me.  \r\n\n"
KEPT = train_tokenizer([PLAY] * 2, TextConfig(kind="byte-bpe", vocab_size=277, whitespace="keep", strict=False))


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back(text: str) -> None:
    ids = TOKENIZER.encode([text])
    assert TOKENIZER.decode(ids) == [clean(text)]
    assert TOKENIZER.unk_id not in ids[0]


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(" \n\t\r\u00a0\ufeff")))
def test_kept_white_space_comes_back(text: str) -> None:
    composed = unicodedata.normalize("NFC", text)
    assert KEPT.decode(KEPT.encode([text, PLAY])) == [composed, PLAY]
    assert KEPT.decode(KEPT.encode([composed])) == [composed]


def test_a_run_of_white_space_is_a_word() -> None:
    words = KEPT._rust.pre_tokenizer.pre_tokenize_str("if x:\n\n    y \n\nz 7\t!  ")
    assert [word.translate({ord("Ġ"): " ", ord("Ċ"): "\n", ord("ĉ"): "\t"}) for word, _ in words] == [
        "if", " x", ":", "\n\n   ", " y", " \n\n", "z", " 7", "\t", "!", "  ",
    ]  # fmt: skip
    assert KEPT.pieces(KEPT.encode(["\n\n\t"])[0])[-1] == "⇥"


def test_pieces_are_readable_where_bytes_are_whole_characters() -> None:
    assert TOKENIZER.pieces(TOKENIZER.encode(["the é"])[0]) == ["▁the", "▁", "⟨c3⟩", "⟨a9⟩"]
    assert "▁बिल्ली" in TOKENIZER.pieces(range(TOKENIZER.vocab_size))


def test_every_byte_has_its_entry() -> None:
    bare = train_tokenizer(["a"], TextConfig(kind="byte-bpe", vocab_size=260))
    assert bare.vocab_size == 260
    with pytest.raises(TokenizerError, match=r"set text\.vocab_size to at least 260"):
        train_tokenizer(["a"], TextConfig(kind="byte-bpe", vocab_size=259))

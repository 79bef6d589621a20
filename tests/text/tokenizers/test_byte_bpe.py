import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearformer.errors import TokenizerError
from clearformer.text import TextConfig, train_tokenizer
from clearformer.text.normalize import clean

TOKENIZER = train_tokenizer(
    ["the cat, the cats", "बिल्ली बिल्ली"], TextConfig(kind="byte-bpe", vocab_size=283, strict=False)
)


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back(text: str) -> None:
    ids = TOKENIZER.encode([text])
    assert TOKENIZER.decode(ids) == [clean(text)]
    assert TOKENIZER.unk_id not in ids[0]


def test_pieces_are_readable_where_bytes_are_whole_characters() -> None:
    assert TOKENIZER.pieces(TOKENIZER.encode(["the é"])[0]) == ["▁the", "▁", "⟨c3⟩", "⟨a9⟩"]
    assert "▁बिल्ली" in TOKENIZER.pieces(range(TOKENIZER.vocab_size))


def test_every_byte_has_its_entry() -> None:
    bare = train_tokenizer(["a"], TextConfig(kind="byte-bpe", vocab_size=260))
    assert bare.vocab_size == 260
    with pytest.raises(TokenizerError, match="ask for 260 or more"):
        train_tokenizer(["a"], TextConfig(kind="byte-bpe", vocab_size=259))

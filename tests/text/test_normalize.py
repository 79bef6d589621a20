import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearformer.errors import ConfigError
from clearformer.text import TextConfig
from clearformer.text.normalize import clean, composer, encodable, normalizer

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("\ufeffcafe\u0301 \t au\u00a0lait\r\n", "café au lait"),
        ("a\x00b\x7fc\x9f", "abc"),
        ("a\x85b\u2028c\u3000d\x0be", "a b c d e"),  # white space that happens to be a control character stays one
        ("a\x00\u0301", "á"),  # controls go before composition, or they would keep the accent apart
        ("क्\u200dष", "क्\u200dष"),  # the joiner means something
        ("ﬁ①", "ﬁ①"),
        (" \t ", ""),
        ("plain  text ", "plain text"),
    ],
)
def test_clean_by_hand(raw: str, expected: str) -> None:
    assert clean(raw) == expected


def test_forms() -> None:
    assert clean("ﬁ①", "NFKC") == "fi1"
    with pytest.raises(ConfigError, match="'NFC' or 'NFKC'"):  # lines are composed before a tokenizer sees them
        TextConfig.parse({"normalization": "none"}, "[text]")


@given(ANY_TEXT)
def test_clean_is_idempotent_and_is_what_the_rust_library_computes(text: str) -> None:
    assert clean(clean(text)) == clean(text) == normalizer("NFC").normalize_str(text)


def test_lowercase_stays_composed() -> None:
    assert normalizer("NFC", lowercase=True).normalize_str("J\u030c\u00c9") == "\u01f0\u00e9"
    assert normalizer("NFKC", lowercase=True).normalize_str("ℌ") == "h"


def test_half_surrogates_keep_their_place() -> None:
    assert encodable("a\ud800b\U0001f642") == "a\ufffdb\U0001f642"
    assert clean("a\udcffb") == "a\ufffdb"


def test_the_composer_leaves_white_space_and_controls_alone() -> None:
    assert composer().normalize_str(" cafe\u0301\t\x07\r\n\n\ufeff") == " café\t\x07\r\n\n\ufeff"
    assert composer("NFKC", lowercase=True).normalize_str(" ﬁ\nJ\u030c") == " fi\n\u01f0"

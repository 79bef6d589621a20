"""Normalise text, the first step for every line of data and in every tokenizer.

    clean("\\ufeffcafe\\u0301 \\t au\\u00a0lait\\r\\n")  ->  "café au lait"

1. remove control characters (category Cc) except white space, and the byte order mark;
2. compose characters (NFC, or NFKC, which also folds "ﬁ" into "fi" and "①" into "1");
3. replace every run of Unicode white space by one space, and strip both ends.

The steps are stored in tokenizer.json, so that every program that loads the file gets the same ids from raw text.
Format characters are kept: the zero-width joiner and non-joiner change the meaning of Hindi and Persian words.
"""

import re
from functools import lru_cache
from typing import Literal
from unicodedata import is_normalized

from tokenizers import Regex, normalizers

Form = Literal["NFC", "NFKC"]

CONTROL = Regex(r"[\p{Cc}\x{FEFF}&&[^\t\n\x0B\f\r\x{85}]]")
SPACES = Regex(r"\s+")
SURROGATE = re.compile("[\ud800-\udfff]")


@lru_cache
def normalizer(form: Form = "NFC", lowercase: bool = False) -> normalizers.Normalizer:
    """Return steps 1 to 3 (see the top of this file) as a normalizer of the Rust library."""
    spaces = [normalizers.Replace(SPACES, " "), normalizers.Strip()]
    return normalizers.Sequence([normalizers.Replace(CONTROL, ""), *letters(form, lowercase), *spaces])


@lru_cache
def composer(form: Form = "NFC", lowercase: bool = False) -> normalizers.Normalizer:
    """Return a normalizer for step 2 only, composition, which leaves white space unchanged."""
    return normalizers.Sequence(letters(form, lowercase))


def letters(form: Form, lowercase: bool) -> list[normalizers.Normalizer]:
    """Return the normalizers of step 2. After lowercasing, the text must be composed again.

    J + caron, for example, is two characters, but in lower case it is one: ǰ.
    """
    composed = getattr(normalizers, form)()
    return [composed, normalizers.Lowercase(), composed] if lowercase else [composed]


def clean(line: str, form: Form = "NFC") -> str:
    """Return the normalised line. A line that is clean already, the common case, is returned at once."""
    return line if is_clean(line, form) else str(normalizer(form).normalize_str(encodable(line)))


def is_clean(line: str, form: Form = "NFC") -> bool:
    """Whether `line` equals its normalised form. False for some clean lines: those with format characters.

    A printable line has no control characters, no surrogates and no white space but the plain space.
    """
    if not line.isprintable() or "  " in line or line[:1] == " " or line[-1:] == " ":
        return False
    return line.isascii() or is_normalized(form, line)


def encodable(text: str) -> str:
    """Replace every lone surrogate in `text` by U+FFFD, since surrogates cannot be encoded as UTF-8.

    They come from JSON escapes and from files read with `errors="surrogateescape"`; the Rust library rejects them.
    """
    return SURROGATE.sub("\ufffd", text)

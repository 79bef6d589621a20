"""One spelling for every line, before anything looks at it.

    clean("\\ufeffcafe\\u0301 \\t au\\u00a0lait\\r\\n")  ->  "café au lait"

1. control characters go (category Cc, and the byte order mark), white space among them excepted;
2. the rest is composed (NFC, or NFKC which also folds "ﬁ" into "fi" and "①" into "1");
3. every run of Unicode white space becomes one space, and none is left at the ends.

Data lines and tokenizers share this definition, and it is written into tokenizer.json, so that whoever
loads that file gets the same ids from raw text. Format characters stay: the zero-width joiner and
non-joiner change what a Hindi or Persian word says.
"""

import re
from functools import lru_cache
from typing import Literal

from tokenizers import Regex, normalizers

Form = Literal["NFC", "NFKC"]

CONTROL = Regex(r"[\p{Cc}\x{FEFF}&&[^\t\n\x0B\f\r\x{85}]]")
SPACES = Regex(r"\s+")
SURROGATE = re.compile("[\ud800-\udfff]")


@lru_cache
def normalizer(form: Form = "NFC", lowercase: bool = False) -> normalizers.Normalizer:
    """The steps above, for the Rust library."""
    tidied = [normalizers.Replace(SPACES, " "), normalizers.Strip()]
    return normalizers.Sequence([normalizers.Replace(CONTROL, ""), *letters(form, lowercase), *tidied])


@lru_cache
def composer(form: Form = "NFC", lowercase: bool = False) -> normalizers.Normalizer:
    """Step 2 alone: text whose letters are composed comes through as it is, every space, line and tab of it."""
    return normalizers.Sequence(letters(form, lowercase))


def letters(form: Form, lowercase: bool) -> list[normalizers.Normalizer]:
    """Lowercasing can undo composition (J + caron has no single character, ǰ has), hence the form on both sides."""
    composed = getattr(normalizers, form)()
    return [composed, normalizers.Lowercase(), composed] if lowercase else [composed]


def clean(line: str, form: Form = "NFC") -> str:
    """`line` in its one spelling. Plain ASCII that is already clean, the common case, is returned as it is."""
    if line.isascii() and line.isprintable() and "  " not in line and line == line.strip():
        return line
    return str(normalizer(form).normalize_str(encodable(line)))


def encodable(text: str) -> str:
    """`text` with half surrogate pairs, which are no characters and have no UTF-8, shown as U+FFFD one for one.

    They come from JSON escapes and from files read with `errors="surrogateescape"`; the Rust library refuses them.
    """
    return SURROGATE.sub("\ufffd", text)

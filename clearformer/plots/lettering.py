"""Words on a picture: find fonts that have their letters, and spell in Latin letters what no font has.

matplotlib draws an empty box, and warns, for a letter its font lacks. Here each letter is first looked for in
DejaVu Sans, which comes with matplotlib and covers Latin, Greek, Cyrillic, Arabic and more; then in the other fonts of
the machine; and if none has it, the word is romanised by the Unicode names of its letters.
"""

import unicodedata
from collections.abc import Sequence
from functools import cache

from matplotlib.font_manager import fontManager, get_font

BASE = "DejaVu Sans"


def lettering(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Make `words` drawable: the font families to use, in order of fallback, and the words as these can write them."""
    families, missing = [BASE], {letter for word in words for letter in word} - letters_of(BASE)
    for family in other_families() if missing else ():
        if found := missing & letters_of(family):
            families.append(family)
            missing -= found
        if not missing:
            break
    return families, [romanise(word) if missing & set(word) else word for word in words]


def make_visible(piece: str) -> str:
    """A tokenizer's piece with its blanks made visible: a space becomes ␣, a newline the two characters \\n."""
    escaped = (c.encode("unicode_escape").decode() if unicodedata.category(c) == "Cc" else c for c in piece)
    return "".join(escaped).replace(" ", "␣")


def romanise(word: str) -> str:
    """Spell the letters that DejaVu Sans lacks by what Unicode calls them: किताब becomes kitaaba, 中 becomes U+4E2D.

    The scripts descended from Brahmi (Devanagari, Bengali, Tamil, ...) share one naming scheme: a consonant carries
    an `a`, which a vowel sign replaces and a virama removes. This is a reading aid, not a standard of transliteration.
    """
    spelled = ""
    for letter in unicodedata.normalize("NFC", word):
        match unicodedata.name(letter, "").split():
            case _ if letter in letters_of(BASE):
                spelled += letter
            case [_, "LETTER", *_, sound]:
                spelled += sound.lower()
            case [_, "VOWEL", "SIGN", *_, sound]:
                spelled = spelled.removesuffix("a") + sound.lower()
            case [_, "SIGN", "VIRAMA"]:
                spelled = spelled.removesuffix("a")
            case [_, "SIGN", "ANUSVARA" | "CANDRABINDU"]:
                spelled += "m"
            case [_, "SIGN", "VISARGA"]:
                spelled += "h"
            case [_, "SIGN", "NUKTA"]:
                pass
            case [_, "DANDA"]:
                spelled += "|"
            case [_, "DIGIT", _]:
                spelled += str(unicodedata.digit(letter))
            case _:
                spelled += f"U+{ord(letter):04X}"
    return spelled


@cache
def letters_of(family: str) -> frozenset[str]:
    """The letters that a font family has glyphs for."""
    return frozenset(map(chr, get_font(files()[family]).get_charmap()))


def other_families() -> list[str]:
    """The machine's other font families, sans serif first.

    Left out is Last Resort, which has a glyph for every letter, but only to say that the real one is missing.
    """
    families = (name for name in files() if name != BASE and not name.startswith("Last Resort"))
    return sorted(families, key=lambda name: ("Sans" not in name, name))


def files() -> dict[str, str]:
    """Font families and, of each, one upright file, of regular weight if there is one: others may lack letters."""
    upright = [entry for entry in fontManager.ttflist if entry.style == "normal"]
    return {entry.name: entry.fname for entry in sorted(upright, key=lambda entry: entry.weight in (400, "normal"))}

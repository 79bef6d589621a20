"""Text in figures: fonts for all scripts, and romanisation for letters without a font.

matplotlib draws an empty box, and warns, for a letter that is missing from its font. Here each letter is looked up in
DejaVu Sans, which comes with matplotlib and covers Latin, Greek, Cyrillic, Arabic and more, then in the other fonts of
the machine. If no font has a letter, its word is romanised by the Unicode names of its letters.
"""

import unicodedata
from collections.abc import Sequence
from functools import cache

from matplotlib.font_manager import fontManager, get_font

BASE = "DejaVu Sans"


def lettering(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the font families to use, in order of fallback, and the words, romanised if these fonts lack letters."""
    families, missing = [BASE], {letter for word in words for letter in word} - letters_of(BASE)
    for family in other_families() if missing else ():
        if covered := missing & letters_of(family):
            families.append(family)
            missing -= covered
        if not missing:
            break
    return families, [romanise(word) if missing & set(word) else word for word in words]


def make_visible(token: str) -> str:
    """Make the white space of a token visible: a space becomes ␣, a newline the two characters \\n."""
    escaped = (c.encode("unicode_escape").decode() if unicodedata.category(c) == "Cc" else c for c in token)
    return "".join(escaped).replace(" ", "␣")


def romanise(word: str) -> str:
    """Spell letters that are missing from DejaVu Sans by their Unicode names: किताब becomes kitaaba, 中 becomes U+4E2D.

    The scripts descended from Brahmi (Devanagari, Bengali, Tamil, ...) have a common naming scheme: a
    consonant includes an `a`, which a vowel sign replaces and a virama removes. This is a reading aid, not a standard
    transliteration.
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
    """Return the letters that a font family has glyphs for."""
    return frozenset(map(chr, get_font(files()[family]).get_charmap()))


def other_families() -> list[str]:
    """Return the other font families on the machine, sans serif first.

    Last Resort is excluded: its glyphs are only placeholders for missing letters.
    """
    families = (name for name in files() if name != BASE and not name.startswith("Last Resort"))
    return sorted(families, key=lambda name: ("Sans" not in name, name))


def files() -> dict[str, str]:
    """Return one upright file per font family, of regular weight if available: other weights may lack letters."""
    upright = [entry for entry in fontManager.ttflist if entry.style == "normal"]
    return {entry.name: entry.fname for entry in sorted(upright, key=lambda entry: entry.weight in (400, "normal"))}

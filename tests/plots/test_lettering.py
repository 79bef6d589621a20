from collections.abc import Iterator
from pathlib import Path

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager

from clearformer.plots.lettering import BASE, lettering, letters_of, make_visible, romanise
from clearformer.plots.style import saved_figure

PRIVATE = "\U000f1234"  # a private-use letter: no font of the machine is likely to have it


@pytest.fixture
def font(tmp_path: Path) -> Iterator[str]:
    """A font with one letter, known to matplotlib for the length of a test."""
    pen = TTGlyphPen(None)
    for corner, draw in zip([(0, 0), (0, 700), (500, 0)], [pen.moveTo, pen.lineTo, pen.lineTo]):
        draw(corner)
    pen.closePath()
    glyph, names = pen.glyph(), [".notdef", "one"]
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap({ord(PRIVATE): "one"})
    builder.setupGlyf(dict.fromkeys(names, glyph))
    builder.setupHorizontalMetrics(dict.fromkeys(names, (600, 0)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "One Letter Sans", "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(tmp_path / "one.ttf")
    font_manager.fontManager.addfont(tmp_path / "one.ttf")
    yield "One Letter Sans"
    font_manager.fontManager.ttflist = [e for e in font_manager.fontManager.ttflist if e.name != "One Letter Sans"]
    letters_of.cache_clear()


def test_plain_words_need_no_other_font() -> None:
    assert lettering(["the", "▁größe", "дом"]) == ([BASE], ["the", "▁größe", "дом"])


def test_a_font_that_has_the_letter_is_found_and_draws_it(font: str, tmp_path: Path) -> None:
    families, words = lettering(["house", PRIVATE])
    assert (families, words) == ([BASE, font], ["house", PRIVATE])
    with saved_figure(tmp_path / "letter.png", 1, 1) as figure:
        figure.text(0.5, 0.5, PRIVATE, fontfamily=families)  # a missing glyph would warn, and a warning is an error


def test_without_a_font_the_word_alone_is_spelled_out() -> None:
    assert lettering(["house", PRIVATE]) == ([BASE], ["house", "U+F1234"])


@pytest.mark.parametrize(
    ("word", "spelled"),
    [
        ("घर", "ghara"),
        ("किताब", "kitaaba"),  # a vowel sign replaces the inherent a
        ("नमस्ते", "namaste"),  # a virama removes it
        ("हिंदी", "himdii"),
        ("अँधेरा", "amdheraa"),
        ("दुःख", "duhkha"),
        ("ज़मीन", "jamiina"),  # the nukta is dropped
        ("ि", "i"),  # a piece of a tokenizer may be a sign alone
        ("▁है।", "▁hai|"),
        ("१९४७", "1947"),
        ("বাংলা", "baamlaa"),
        ("中a", "U+4E2Da"),
    ],
)
def test_romanise(word: str, spelled: str) -> None:
    assert romanise(word) == spelled


def test_blanks_are_made_visible() -> None:
    assert [make_visible(piece) for piece in (" ", "\n", "a b", "\t")] == ["␣", "\\n", "a␣b", "\\t"]

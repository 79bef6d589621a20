import pytest

import clearformer
from clearformer.errors import DataError

MODEL, TEXTS = "en-fr-small", ["I am a good boy.", "The cat eats the mouse."]


def test_translate_gives_the_best_of_each_text() -> None:
    assert clearformer.translate(MODEL, TEXTS, beam=2) == clearformer.load(MODEL).translate(TEXTS, beam=2)


def test_a_string_is_one_text() -> None:
    assert clearformer.translate(MODEL, TEXTS[0]) == clearformer.translate(MODEL, TEXTS)[0]
    with pytest.raises(DataError, match=r"input 1 is the float nan, not a text\nhint: remove"):
        clearformer.translate(MODEL, [TEXTS[0], float("nan")])  # type: ignore[list-item]

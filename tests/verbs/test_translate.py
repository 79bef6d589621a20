import pytest

import clearformer
from clearformer.errors import DataError

MODEL, TEXTS = "en-fr-small", ["I am a good boy.", "The cat eats the mouse."]


def test_translate_gives_the_best_of_each_text() -> None:
    assert clearformer.translate(MODEL, TEXTS, beam=2) == clearformer.load(MODEL).translate(TEXTS, beam=2)
    with pytest.raises(DataError, match="expected a list of texts"):
        clearformer.translate(MODEL, TEXTS[0])

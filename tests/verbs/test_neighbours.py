import pytest

import clearformer


def test_neighbours_come_nearest_first() -> None:
    rows = clearformer.neighbours("en-fr-small", "cat", 5)
    assert [(row["word"], row["cosine"]) for row in rows] == clearformer.load("en-fr-small").neighbours("cat", 5)
    cosines = [row["cosine"] for row in rows]
    assert cosines == sorted(cosines, reverse=True)
    assert cosines[0] < 1 + 1e-6
    with pytest.raises(clearformer.ClearformerError, match="is not in the source vocabulary"):
        clearformer.neighbours("en-fr-small", "नमस्ते")

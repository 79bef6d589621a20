"""neighbours: the words nearest to a word, by their embeddings."""

from pathlib import Path
from typing import Any

from clearformer.handles.translator import Translator
from clearformer.verbs.load import load_for


def neighbours(model: str | Path, word: str, n: int = 10, *, device: str = "cpu") -> list[dict[str, Any]]:
    """The n nearest words of a translator's source vocabulary: word, cosine; the nearest first."""
    translator: Translator = load_for("neighbours", model, device)
    return [{"word": piece, "cosine": cosine} for piece, cosine in translator.neighbours(word, n)]

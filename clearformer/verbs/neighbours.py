"""neighbours: find the words whose embeddings are most similar to the embedding of a word."""

from pathlib import Path
from typing import Any

from clearformer.handles.translator import Translator
from clearformer.verbs.load import load_for


def neighbours(model: str | Path, word: str, n: int = 10, *, device: str = "cpu") -> list[dict[str, Any]]:
    """Return the n most similar words in the source vocabulary of a translator, each with its cosine, best first."""
    translator: Translator = load_for("neighbours", model, device)
    return [{"word": token, "cosine": cosine} for token, cosine in translator.neighbours(word, n)]

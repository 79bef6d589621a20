"""neighbours: the words with the embeddings most similar to a word."""

from pathlib import Path
from typing import Any

from clearformer.handles.translator import Translator
from clearformer.verbs.load import load_for


def neighbours(model: str | Path, word: str, n: int = 10, *, device: str = "cpu") -> list[dict[str, Any]]:
    """The n most similar words in the source vocabulary of a translator, most similar first: word, cosine."""
    translator: Translator = load_for("neighbours", model, device)
    return [{"word": token, "cosine": cosine} for token, cosine in translator.neighbours(word, n)]

"""neighbours: find the words whose embeddings are most similar to a word, or to a sum of words."""

from pathlib import Path
from typing import Any

from clearformer.handles.word_vectors import WordVectors
from clearformer.verbs.load import load_for


def neighbours(model: str | Path, word: str, n: int = 10, *, device: str = "cpu") -> list[dict[str, Any]]:
    """Return the n most similar words of the vocabulary of a model, each with its cosine, best first.

    `word` may be a sum of words: "king - man + woman". A translator uses its source vocabulary.
    """
    handle: WordVectors = load_for("neighbours", model, device)
    return [{"word": token, "cosine": cosine} for token, cosine in handle.neighbours(word, n)]

"""The words whose embeddings are most similar to a word, or to a sum of words: king − man + woman ≈ queen.

    argmax_x cos(E[x], Σ ± v(w))        handles/word_vectors.py has the equation and its parts

The words of the sum itself are left out. A translator uses its source embeddings.
"""

from typing import Any

from clearformer.handles.handle import Handle
from clearformer.lens.vectors import choose


def neighbours(handle: Handle, word: str, n: int = 10) -> dict[str, Any]:
    """Return the n tokens most similar to a word, or to a sum of words, best first, each with its cosine."""
    choose(handle, None)  # raises for a model without token embeddings
    vectors: Any = handle
    rows = vectors.neighbours(word, n)
    return {
        "title": f"Neighbours of {word} in {handle.name}",
        "word": word,
        "tokens": [token for token, _ in rows],
        "cosines": [cosine for _, cosine in rows],
    }

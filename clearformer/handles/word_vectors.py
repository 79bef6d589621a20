"""The embeddings of words as vectors: neighbours by cosine, and arithmetic.

v(w)        = mean of E[token] / |E[token]| over the tokens of w, scaled to length 1
neighbours  = argmax_x cos(E[x], Σ ± v(w))           king − man + woman ≈ queen       Mikolov et al. 2013
"""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.errors import ConfigError, DataError, did_you_mean
from clearformer.text import Tokenizer

SIGNS = {"+": 1.0, "-": -1.0, "−": -1.0}
TINY = 1e-6  # the length of a sum of unit vectors that is zero up to rounding
OPERATOR = re.compile(r"(?:^|(?<=\s))([+\-−])\s+")  # a hyphen inside a word is no minus sign


class Table(NamedTuple):
    """Token embeddings (V, D) and their tokenizer. `name` is "source" or "target" in a translator, else empty."""

    name: str
    weight: Tensor
    tokenizer: Tokenizer

    @property
    def vocabulary(self) -> str:
        return f"{self.name} vocabulary".strip()


class WordVectors:
    """A handle with token embeddings."""

    model: Any
    name: str

    def embedding_tables(self) -> list[Table]:
        """The token embeddings: one table, or the source and the target table of a translator."""
        tokenizer: Any = getattr(self, "tokenizer", None)
        return [Table("", input_vectors(getattr(self.model, "base", self.model)), tokenizer)]

    def neighbours(self, word: str, n: int = 10) -> list[tuple[str, float]]:
        """Return the n tokens whose embeddings are most similar to a word, or to a sum of words, by cosine.

        A sum is written with spaces around its signs: "king - man + woman". A translator uses its source embeddings.
        """
        table = self.embedding_tables()[0]
        rows = F.normalize(table.weight.float(), dim=1)  # (V, D)
        terms = [(sign, ids_of(term, table, self.name)) for sign, term in parse_sum(word)]
        total = torch.stack([sign * word_vector(rows, ids) for sign, ids in terms]).sum(0)
        if total.norm() < TINY:
            raise DataError(f"`{word}` is the zero vector, which has no direction", "leave out words that cancel")
        similarity = rows @ F.normalize(total, dim=0)
        excluded = {token for _, ids in terms for token in ids} | set(table.tokenizer.special_ids)
        excluded |= {getattr(table.tokenizer, f"{role}_id") for role in ("pad", "bos", "eos", "unk")} - {None}
        similarity[sorted(excluded)] = -2.0  # below any cosine
        best = similarity.topk(min(n, len(similarity) - len(excluded)))
        return list(zip(table.tokenizer.pieces(best.indices.tolist()), best.values.tolist()))


def input_vectors(network: Any) -> Tensor:
    """Return the vectors (V, D) by which a network reads tokens.

    A recurrent network on one-hot vectors has none; the columns of its first input matrix take their place.
    """
    if hasattr(weight := getattr(getattr(network, "embedding", None), "weight", None), "detach"):
        return weight.detach()  # type: ignore[union-attr]
    return network.layers.weights.weight_ih_l0.detach().T


def parse_sum(text: str) -> list[tuple[float, str]]:
    """Split "king - man + woman" into signed words; "−" is a minus sign too. A text without signs is one word."""
    if len(text.split()) < 2 or not OPERATOR.search(text):
        return [(1.0, text)]
    first, *rest = OPERATOR.split(text)
    terms = [("+", first), *zip(rest[::2], rest[1::2])] if first.strip() else list(zip(rest[::2], rest[1::2]))
    if not all(term.strip() for _, term in terms):
        raise ConfigError(f"`{text}` has a sign without a word", 'write a sum as "king - man + woman"')
    return [(SIGNS[sign], term.strip()) for sign, term in terms]


def ids_of(word: str, table: Table, name: str) -> list[int]:
    """Return the tokens of a word: as it occurs after a space, unless the space becomes a token as well."""
    tokenizer = table.tokenizer
    alone, after_space = tokenizer.encode([word, f" {word}"])
    is_whole = 0 < len(after_space) <= len(alone) and tokenizer.unk_id not in after_space
    ids = after_space if is_whole else alone
    if not ids or tokenizer.unk_id in ids:
        raise DataError(f"`{word}` is not in the {table.vocabulary} of {name}", nearest_words(word, table))
    return ids


def nearest_words(word: str, table: Table) -> str:
    pieces = (piece.strip("▁ ") for piece in table.tokenizer.pieces(range(table.tokenizer.vocab_size)))
    close = get_close_matches(word, {piece for piece in pieces if piece}, n=3, cutoff=0.7)
    language = f"a word of the {table.name} language" if table.name else "a word of the training data"
    return did_you_mean(close) if close else f"give {language}"


def word_vector(rows: Tensor, ids: Sequence[int]) -> Tensor:
    """Return the direction of a word, (D,): the mean of its unit vectors, of length 1."""
    return F.normalize(rows[list(ids)].mean(0), dim=0)

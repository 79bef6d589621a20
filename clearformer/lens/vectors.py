"""The map of the token embeddings of a text, or of given words, in two and three dimensions.

    z = (E[token] − μ) V_K, K = 2, 3        the principal components of the tokens shown (layers/pca.py)

Tokens that the model uses in similar ways lie near each other. Only part of the variance is visible in a map:
the fraction `explained`. A translator has a map of the source and of the target tokens.
"""

from itertools import islice
from typing import Any

import torch
from torch import Tensor

from clearformer.errors import ConfigError, DataError, suggest
from clearformer.handles.handle import Handle
from clearformer.handles.word_vectors import Table, WordVectors, ids_of
from clearformer.layers.pca import fit_pca
from clearformer.lens.reading import Reading
from clearformer.wording import count

FEWEST = 3  # points of a map


def vectors_of_text(handle: Handle, reading: Reading, layer: str | None = None) -> dict[str, Any]:
    """Return the maps of the tokens of a text, each token once."""
    tables = choose(handle, layer)
    maps = []
    for table in tables:
        tokens = tokens_of(reading.batch, table)
        ids = list(dict.fromkeys(token for token in tokens if token not in table.tokenizer.special_ids))
        if len(ids) >= FEWEST or len(tables) == 1:
            maps.append(one_map(table, table.tokenizer.pieces(ids), table.weight[ids]))
    if not maps:
        raise too_few(0)
    return {"title": f"Embeddings of {handle.name}", "maps": maps}


def vectors_of_words(handle: Handle, words: str, layer: str | None = None) -> dict[str, Any]:
    """Return the map of words, separated by spaces. The vector of a word is the mean over its tokens."""
    table = choose(handle, layer)[0]
    names = list(dict.fromkeys(words.replace(",", " ").split()))
    rows = [table.weight[ids_of(name, table, handle.name)].float().mean(0) for name in names]
    if len(rows) < FEWEST:
        raise too_few(len(rows))
    return {"title": f"Embeddings of {handle.name}", "maps": [one_map(table, names, torch.stack(rows))]}


def known_words(handle: Handle, words: str, layer: str | None = None) -> tuple[list[str], list[str]]:
    """Split words into those that the vocabulary can spell and those that it cannot."""
    table = choose(handle, layer)[0]
    known: list[str] = []
    unknown: list[str] = []
    for word in dict.fromkeys(words.replace(",", " ").split()):
        try:
            ids_of(word, table, handle.name)
        except DataError:
            unknown.append(word)
        else:
            known.append(word)
    return known, unknown


def vocabulary_words(handle: Handle, n: int, layer: str | None = None) -> list[str]:
    """Return the first n tokens of the vocabulary that are words of three letters or more, as they are typed."""
    tokenizer = choose(handle, layer)[0].tokenizer
    pieces = (piece.strip("▁Ġ ") for piece in tokenizer.pieces(range(tokenizer.vocab_size)))
    return list(islice((piece for piece in pieces if len(piece) > 2 and piece.isalpha()), n))


def choose(handle: Handle, layer: str | None) -> list[Table]:
    """Return the tables of embeddings, or the one called `layer`: source or target."""
    if not isinstance(handle, WordVectors):
        raise ConfigError(f"{handle.name} is {handle.kind}: it has no token embeddings", "choose a model of text")
    tables = handle.embedding_tables()
    if layer is None:
        return tables
    if layer not in (names := [table.name for table in tables]):
        hint = suggest(layer, names) if len(names) > 1 else "omit --layer"
        raise ConfigError(f"{handle.name} has no embeddings called `{layer}`", hint)
    return [table for table in tables if table.name == layer]


def tokens_of(batch: Any, table: Table) -> list[int]:
    """Return the tokens that a model reads through a table."""
    return (getattr(batch, table.name) if table.name else batch.tokens)[0].tolist()


def one_map(table: Table, names: list[str], rows: Tensor) -> dict[str, Any]:
    if len(rows) < FEWEST:
        raise too_few(len(rows))
    rows = rows.double()
    pca = fit_pca(rows, min(3, rows.size(1)))
    unit = torch.nn.functional.normalize(rows, dim=1)
    return {
        "name": table.name or "tokens",
        "tokens": names,
        "points": pca.transform(rows).tolist(),
        "explained": pca.explained.tolist(),
        "norms": rows.norm(dim=1).tolist(),
        "cosines": (unit @ unit.T).tolist(),
    }


def too_few(n: int) -> DataError:
    different = count(n, "different token") if n else "too few different tokens"
    return DataError(f"{different}: a map needs at least {FEWEST}", "give a longer text, or more words by --words")

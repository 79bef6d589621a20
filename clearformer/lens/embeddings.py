"""Where a network puts pictures, on a plane, beside where their pixels do; or texts, beside where counts of tokens do.

A code of two numbers is a place already; of more, the first two principal components are shown (layers/pca.py). Of an
autoencoder also what it gives back, beside what PCA does from as many numbers.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from clearformer.data.album import Album
from clearformer.data.excerpts import Excerpts
from clearformer.errors import DataError
from clearformer.handles.image_autoencoder import ImageAutoencoder
from clearformer.handles.image_model import ImageModel
from clearformer.handles.text_encoder import TextEncoder
from clearformer.layers.pca import fit_pca
from clearformer.lens.shown import shown

PICTURES = 10  # that are shown with what comes back
TOKENS = 1000  # the commonest, that are counted


@torch.no_grad()
def place(eye: ImageModel, album: Album) -> dict[str, Any]:
    """The numbers that `clearformer plot embeddings` draws."""
    check_enough(len(album.pixels), "pictures", "give a folder of them")
    pixels, vectors = torch.from_numpy(album.pixels).double() / 255, eye.vectors(album.pixels)
    word = "code" if isinstance(eye, ImageAutoencoder) else "vector"
    numbers: dict[str, Any] = {
        "title": f"{len(vectors):,} pictures where {eye.name} puts them, and where their pixels do",
        "labels": album.labels,
        "views": {f"{word} of {vectors.size(1)} numbers": on_a_plane(vectors), "pixels": on_a_plane(pixels.flatten(1))},
    }
    return numbers | (give_back(eye, album, pixels) if isinstance(eye, ImageAutoencoder) else {})


def place_texts(encoder: TextEncoder, excerpts: Excerpts) -> dict[str, Any]:
    """The same of texts."""
    check_enough(len(excerpts.texts), "texts", "give a file of them, a line each")
    vectors = encoder.embed(excerpts.texts)
    counts = count_tokens(encoder.tokenizer.encode(excerpts.texts))
    return {
        "title": f"{len(vectors):,} texts where {encoder.name} puts them, and where their words do",
        "labels": excerpts.labels,
        "views": {
            f"vector of {vectors.size(1)} numbers": on_a_plane(vectors),
            f"counts of {counts.size(1)} tokens": on_a_plane(counts),
        },
    }


def check_enough(n: int, what: str, hint: str) -> None:
    if n < 3:
        raise DataError(f"{n} {what} are too few for a plane", hint)


def count_tokens(rows: Sequence[Sequence[int]]) -> Tensor:
    """How often each text has each of the commonest tokens, (N, D), in the order of their numbers."""
    owners = torch.arange(len(rows)).repeat_interleave(torch.tensor([len(row) for row in rows]))
    tokens = torch.tensor([token for row in rows for token in row])
    kinds, counts = tokens.unique(return_counts=True)
    kinds = kinds[counts.argsort(descending=True, stable=True)[:TOKENS]].sort().values
    is_common = torch.isin(tokens, kinds)
    table = torch.zeros(len(rows), len(kinds), dtype=torch.float64)
    places = (owners[is_common], torch.searchsorted(kinds, tokens[is_common]))
    return table.index_put_(places, torch.ones((), dtype=torch.float64), accumulate=True)


def on_a_plane(points: Tensor) -> dict[str, Any]:
    """(N, D) -> points (N, 2), and the share of the variance that each axis has, where they are components."""
    if points.size(1) == 2:
        return {"points": points.tolist(), "explained": None}
    pca = fit_pca(points.double(), 2)
    return {"points": pca.transform(points.double()).tolist(), "explained": pca.explained.tolist()}


def give_back(coder: ImageAutoencoder, album: Album, pixels: Tensor) -> dict[str, Any]:
    """Some pictures, one of each class first, and both reconstructions; and the errors over all, as [image] has 1."""
    flat, (_, std) = pixels.flatten(1), coder.image.statistics(pixels.device, pixels.dtype)
    K = min(coder.model.config.d_code, *flat.shape)
    pca = fit_pca(flat, K)
    made = {
        coder.name: coder.reconstruct(album.pixels).double(),
        f"PCA of {K}, fitted to these": pca.reconstruct(pca.transform(flat)).view_as(pixels),
    }
    firsts = list({label: i for i, label in reversed([*enumerate(album.labels)])}.values())
    rows = sorted([*firsts, *(i for i in range(len(pixels)) if i not in set(firsts))][:PICTURES])
    rows = sorted(rows, key=lambda i: album.labels[i])
    return {
        "error": {name: float(((found - pixels) / std).square().mean()) for name, found in made.items()},
        "pictures": {"original": shown(album.pixels[rows])}
        | {name: shown(as_bytes(found[rows]).numpy()) for name, found in made.items()},
    }


def as_bytes(pixels: Tensor) -> Tensor:
    """0 … 1 as uint8; what lies beyond is cut."""
    return (pixels.clamp(0, 1) * 255).round().byte()

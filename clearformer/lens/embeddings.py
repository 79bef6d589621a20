"""The embeddings of images in two dimensions, beside those of their pixels; or of texts, beside token counts.

Vectors of two numbers are shown as they are, longer ones by their first two principal components (layers/pca.py). For
an autoencoder, also its reconstructions, beside those of PCA with as many numbers.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from clearformer.data.image_sample import ImageSample
from clearformer.data.text_sample import TextSample
from clearformer.errors import DataError
from clearformer.handles.image_autoencoder import ImageAutoencoder
from clearformer.handles.image_model import ImageModel
from clearformer.handles.text_encoder import TextEncoder
from clearformer.layers.pca import fit_pca
from clearformer.lens.shown import shown

PICTURES = 10  # shown with their reconstructions
TOKENS = 1000  # counted, the most frequent


@torch.no_grad()
def place(handle: ImageModel, sample: ImageSample) -> dict[str, Any]:
    """The numbers that `clearformer plot embeddings` draws."""
    check_enough(len(sample.pixels), "images", "give a folder of them")
    pixels, vectors = torch.from_numpy(sample.pixels).double() / 255, handle.vectors(sample.pixels)
    word = "code" if isinstance(handle, ImageAutoencoder) else "vector"
    numbers: dict[str, Any] = {
        "title": f"{len(vectors):,} images where {handle.name} puts them, and where their pixels do",
        "labels": sample.labels,
        "views": {f"{word} of {vectors.size(1)} numbers": on_a_plane(vectors), "pixels": on_a_plane(pixels.flatten(1))},
    }
    return numbers | (reconstructions(handle, sample, pixels) if isinstance(handle, ImageAutoencoder) else {})


def place_texts(encoder: TextEncoder, sample: TextSample) -> dict[str, Any]:
    """The same for texts."""
    check_enough(len(sample.texts), "texts", "give a file of them, a line each")
    vectors = encoder.embed(sample.texts)
    counts = count_tokens(encoder.tokenizer.encode(sample.texts))
    return {
        "title": f"{len(vectors):,} texts where {encoder.name} puts them, and where their words do",
        "labels": sample.labels,
        "views": {
            f"vector of {vectors.size(1)} numbers": on_a_plane(vectors),
            f"counts of {counts.size(1)} tokens": on_a_plane(counts),
        },
    }


def check_enough(n: int, what: str, hint: str) -> None:
    if n < 3:
        raise DataError(f"a plane needs at least 3 {what}, and got {n}", hint)


def count_tokens(rows: Sequence[Sequence[int]]) -> Tensor:
    """How often each of the most frequent tokens occurs in each text, (N, D), in the order of their ids."""
    owners = torch.arange(len(rows)).repeat_interleave(torch.tensor([len(row) for row in rows]))
    tokens = torch.tensor([token for row in rows for token in row])
    kinds, counts = tokens.unique(return_counts=True)
    kinds = kinds[counts.argsort(descending=True, stable=True)[:TOKENS]].sort().values
    is_common = torch.isin(tokens, kinds)
    table = torch.zeros(len(rows), len(kinds), dtype=torch.float64)
    places = (owners[is_common], torch.searchsorted(kinds, tokens[is_common]))
    return table.index_put_(places, torch.ones((), dtype=torch.float64), accumulate=True)


def on_a_plane(points: Tensor) -> dict[str, Any]:
    """(N, D) -> points (N, 2), and the share of the variance along each axis, where the axes are components."""
    if points.size(1) == 2:
        return {"points": points.tolist(), "explained": None}
    pca = fit_pca(points.double(), 2)
    return {"points": pca.transform(points.double()).tolist(), "explained": pca.explained.tolist()}


def reconstructions(coder: ImageAutoencoder, sample: ImageSample, pixels: Tensor) -> dict[str, Any]:
    """Some images, one of each class first, with both reconstructions, and the mean errors over all images.

    Errors are in units of the standard deviation in [image].
    """
    flat, (_, std) = pixels.flatten(1), coder.image.statistics(pixels.device, pixels.dtype)
    K = min(coder.model.config.d_code, *flat.shape)
    pca = fit_pca(flat, K)
    rebuilt = {
        coder.name: coder.reconstruct(sample.pixels).double(),
        f"PCA of {K}, fitted to these": pca.reconstruct(pca.transform(flat)).view_as(pixels),
    }
    firsts = list({label: i for i, label in reversed([*enumerate(sample.labels)])}.values())
    rows = sorted([*firsts, *(i for i in range(len(pixels)) if i not in set(firsts))][:PICTURES])
    rows = sorted(rows, key=lambda i: sample.labels[i])
    return {
        "error": {name: float(((image - pixels) / std).square().mean()) for name, image in rebuilt.items()},
        "pictures": {"original": shown(sample.pixels[rows])}
        | {name: shown(as_bytes(image[rows]).numpy()) for name, image in rebuilt.items()},
    }


def as_bytes(pixels: Tensor) -> Tensor:
    """0 … 1 as uint8; values outside are clamped."""
    return (pixels.clamp(0, 1) * 255).round().byte()

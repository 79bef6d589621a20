"""Show embeddings in two dimensions: images are compared with their pixels, texts with their token counts.

Vectors of width 2 are shown directly, wider ones by their first two principal components (layers/pca.py). For an
autoencoder, its reconstructions are compared with PCA, using a code of the same width.
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
from clearformer.wording import count

IMAGES = 10  # images shown with their reconstructions
TOKENS = 1000  # number of tokens counted, the most frequent ones


@torch.no_grad()
def place(handle: ImageModel, sample: ImageSample) -> dict[str, Any]:
    """Compute the data for `clearformer plot embeddings` from images."""
    check_enough(count(len(sample.pixels), "image"), len(sample.pixels), "give a folder with at least 3 images")
    pixels, vectors = torch.from_numpy(sample.pixels).double() / 255, handle.vectors(sample.pixels)
    word = "code" if isinstance(handle, ImageAutoencoder) else "vector"
    embeddings = on_a_plane(vectors) | {"title": f"{word} of width {vectors.size(1)}"}
    data: dict[str, Any] = {
        "title": f"{count(len(vectors), 'image')}: embeddings by {handle.name}, compared with pixels",
        "labels": sample.labels,
        "views": {f"{word} of {vectors.size(1)} numbers": embeddings, "pixels": on_a_plane(pixels.flatten(1))},
    }
    return data | (reconstructions(handle, sample, pixels) if isinstance(handle, ImageAutoencoder) else {})


def place_texts(encoder: TextEncoder, sample: TextSample) -> dict[str, Any]:
    """Compute the data for `clearformer plot embeddings` from texts."""
    check_enough(count(len(sample.texts), "text"), len(sample.texts), "give a file with at least 3 texts, one per line")
    vectors = encoder.embed(sample.texts)
    counts = count_tokens(encoder.tokenizer.encode(sample.texts))
    return {
        "title": f"{count(len(vectors), 'text')}: embeddings by {encoder.name}, compared with token counts",
        "labels": sample.labels,
        "views": {
            f"vector of {vectors.size(1)} numbers": on_a_plane(vectors)
            | {"title": f"vector of width {vectors.size(1)}"},
            f"counts of {counts.size(1)} tokens": on_a_plane(counts)
            | {"title": f"counts of {count(counts.size(1), 'token')}"},
        },
    }


def check_enough(examples: str, n: int, hint: str) -> None:
    if n < 3:
        raise DataError(f"{examples}: a figure of embeddings needs at least 3", hint)


def count_tokens(rows: Sequence[Sequence[int]]) -> Tensor:
    """Count the D most frequent tokens in each of N texts, (N, D), with columns in the order of token ids."""
    owners = torch.arange(len(rows)).repeat_interleave(torch.tensor([len(row) for row in rows]))
    tokens = torch.tensor([token for row in rows for token in row])
    kinds, counts = tokens.unique(return_counts=True)
    kinds = kinds[counts.argsort(descending=True, stable=True)[:TOKENS]].sort().values
    is_common = torch.isin(tokens, kinds)
    table = torch.zeros(len(rows), len(kinds), dtype=torch.float64)
    places = (owners[is_common], torch.searchsorted(kinds, tokens[is_common]))
    return table.index_put_(places, torch.ones((), dtype=torch.float64), accumulate=True)


def on_a_plane(points: Tensor) -> dict[str, Any]:
    """Project points (N, D) to two principal components, with the variance that each explains; keep them if D is 2."""
    if points.size(1) == 2:
        return {"points": points.tolist(), "explained": None}
    pca = fit_pca(points.double(), 2)
    return {"points": pca.transform(points.double()).tolist(), "explained": pca.explained.tolist()}


def reconstructions(coder: ImageAutoencoder, sample: ImageSample, pixels: Tensor) -> dict[str, Any]:
    """Reconstruct sample images by the autoencoder and by PCA, and compute both mean squared errors over all images.

    The samples cover as many classes as possible. Pixel errors are divided by the standard deviation in [image].
    """
    flat, (_, std) = pixels.flatten(1), coder.image.statistics(pixels.device, pixels.dtype)
    K = min(coder.model.config.d_code, *flat.shape)
    pca = fit_pca(flat, K)
    rebuilt = {
        coder.name: coder.reconstruct(sample.pixels).double(),
        f"PCA of {K}, fitted to these": pca.reconstruct(pca.transform(flat)).view_as(pixels),
    }
    firsts = list({label: i for i, label in reversed([*enumerate(sample.labels)])}.values())
    rows = sorted([*firsts, *(i for i in range(len(pixels)) if i not in set(firsts))][:IMAGES])
    rows = sorted(rows, key=lambda i: sample.labels[i])
    return {
        "captions": {f"PCA of {K}, fitted to these": f"PCA with {count(K, 'component')}, fitted to these images"},
        "error": {name: float(((image - pixels) / std).square().mean()) for name, image in rebuilt.items()},
        "images": {"original": shown(sample.pixels[rows])}
        | {name: shown(as_bytes(image[rows]).numpy()) for name, image in rebuilt.items()},
    }


def as_bytes(pixels: Tensor) -> Tensor:
    """Convert pixels from 0 … 1 to uint8. Values outside this range are clamped."""
    return (pixels.clamp(0, 1) * 255).round().byte()

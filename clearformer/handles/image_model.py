"""The base class of image handles: a network with its [image] settings that turns image files into vectors."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.data.batch import ImageBatch
from clearformer.data.pixels import ImageConfig
from clearformer.handles.handle import Handle
from clearformer.handles.inputs import File, one_or_many
from clearformer.handles.passes import in_passes

BUDGET = {"cuda": 2**24, "cpu": 2**21}  # pixel values per batch
ROWS = 1024  # maximum number of images per batch: small images still have large activations


class ImageModel(Handle):
    """An image network. `classes` are the classes of its training data; `unit` scales every embedding to length 1."""

    kind = "an image model"
    verbs: ClassVar[tuple[str, ...]] = ("embed", "plot")
    main = "embed"

    def __init__(
        self, model: nn.Module, image: ImageConfig, classes: Sequence[str], name: str = "model", unit: bool = False
    ) -> None:
        super().__init__(model, name)
        self.image, self.classes, self.unit = image, list(classes), unit

    def facts(self) -> dict[str, str]:
        image = f"{self.image.channels} × {self.image.size} × {self.image.size}"
        return {"image": f"{image} (channels, rows, columns)", **super().facts()}

    @one_or_many
    def embed(self, images: Sequence[File]) -> Tensor:
        """Return the embedding of each image, (N, D) on the CPU: the input of the network's head."""
        return self.vectors(self.pixels(images)) if images else torch.empty(0, 0)

    def vectors(self, pixels: np.ndarray) -> Tensor:
        """Return the embeddings of images given as pixels, uint8 (N, C, size, size)."""
        vectors = self.read(self.model.hidden, pixels)
        return F.normalize(vectors, dim=-1) if self.unit else vectors

    @one_or_many
    def pixels(self, images: Sequence[File]) -> np.ndarray:
        """Return the pixels of image files at the network's input size: uint8 (N, C, size, size)."""
        return np.stack([self.open(image) for image in images])

    def open(self, file: File) -> np.ndarray:
        """Return the pixels of one image file at the network's input size: uint8 (C, size, size).

        Pixels that were read before are returned unchanged.
        """
        if isinstance(file, np.ndarray):
            return file
        from clearformer.data.fitting import fitted
        from clearformer.data.images import open_image

        return fitted(open_image(Path(file)), self.image)

    def batch(self, pixels: np.ndarray) -> ImageBatch:
        """Make a batch of pixels, uint8 (N, C, size, size), normalised and on the network's device."""
        weight = next(self.model.parameters())
        return ImageBatch(self.image.normalise(torch.from_numpy(pixels).to(weight.device), weight.dtype))

    def read(self, compute: Callable[[ImageBatch], Tensor], pixels: np.ndarray) -> Tensor:
        return read_pixels(compute, pixels, self.image, next(self.model.parameters()))


@torch.no_grad()
def read_pixels(
    compute: Callable[[ImageBatch], Tensor], pixels: np.ndarray, image: ImageConfig, weight: Tensor
) -> Tensor:
    """Apply compute(batch) -> (B, …) to images, uint8 (N, C, Y, X). Returns (N, …) on the CPU in float32 or wider.

    `weight` is any parameter of the network: images are moved to its device and dtype.
    """
    results = []
    n_rows = min(ROWS, max(1, BUDGET.get(weight.device.type, BUDGET["cpu"]) // pixels[0].size))
    starts = range(0, len(pixels), n_rows)
    for part in in_passes([pixels[start : start + n_rows] for start in starts], len(pixels)):
        rows = torch.from_numpy(part).to(weight.device)
        result = compute(ImageBatch(image.normalise(rows, weight.dtype)))
        results.append(result.to(torch.promote_types(result.dtype, torch.float32)))
    return torch.cat(results).cpu()

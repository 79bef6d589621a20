"""What every handle for pictures has: a network that sees, and its [image]; files in, vectors out."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.data.batch import ImageBatch
from clearformer.data.pixels import ImageConfig

BUDGET = {"cuda": 2**24, "cpu": 2**21}  # numbers read at once,
Seen = str | Path | np.ndarray  # a file, or what `ImageModel.open` makes of it
ROWS = 1024  # of so many pictures at most: what networks make of small ones is large


class ImageModel:
    """`classes` are those that it was trained on. `unit` makes every vector of length 1."""

    def __init__(
        self, model: nn.Module, image: ImageConfig, classes: Sequence[str], name: str = "model", unit: bool = False
    ) -> None:
        self.model: Any = model
        self.model.eval()
        self.image, self.classes, self.name, self.unit = image, list(classes), name, unit

    def embed(self, pictures: Sequence[Seen]) -> Tensor:
        """What the head reads of each file, (N, D) on the CPU."""
        return self.vectors(self.pixels(pictures)) if pictures else torch.empty(0, 0)

    def vectors(self, pixels: np.ndarray) -> Tensor:
        """The same of pixels, uint8 (N, C, size, size)."""
        found = self.read(self.model.hidden, pixels)
        return F.normalize(found, dim=-1) if self.unit else found

    def pixels(self, pictures: Sequence[Seen]) -> np.ndarray:
        """Files as the network reads them: uint8 (N, C, size, size)."""
        return np.stack([one if isinstance(one, np.ndarray) else self.open(one) for one in pictures])

    def open(self, picture: str | Path) -> np.ndarray:
        """One of them: uint8 (C, size, size)."""
        from clearformer.data.fitting import fitted
        from clearformer.data.images import open_picture

        return fitted(open_picture(Path(picture)), self.image)

    def batch(self, pixels: np.ndarray) -> ImageBatch:
        """uint8 (N, C, size, size), all at once, on the network's device and as it reads them."""
        weight = next(self.model.parameters())
        return ImageBatch(self.image.normalise(torch.from_numpy(pixels).to(weight.device), weight.dtype))

    def read(self, compute: Callable[[ImageBatch], Tensor], pixels: np.ndarray) -> Tensor:
        return read_pixels(compute, pixels, self.image, next(self.model.parameters()))


@torch.no_grad()
def read_pixels(
    compute: Callable[[ImageBatch], Tensor], pixels: np.ndarray, image: ImageConfig, weight: Tensor
) -> Tensor:
    """compute(batch) (B, …) of every picture: uint8 (N, C, Y, X) -> (N, …) on the CPU, in float32 at least.

    `weight` is any of the network's: pictures come to its device, in its type.
    """
    found = []
    n_rows = min(ROWS, max(1, BUDGET.get(weight.device.type, BUDGET["cpu"]) // pixels[0].size))
    for start in range(0, len(pixels), n_rows):
        some = torch.from_numpy(pixels[start : start + n_rows]).to(weight.device)
        told = compute(ImageBatch(image.normalise(some, weight.dtype)))
        found.append(told.to(torch.promote_types(told.dtype, torch.float32)))
    return torch.cat(found).cpu()

"""[image]: how a picture becomes numbers.

    fit          a picture of any shape -> uint8 (C, size, size), once, when a training prepares its data    fitting.py
    augment      other pictures that show the same, in training                                             augment/
    normalise    x̂ = (x / 255 − μ_c) / σ_c: every channel of mean 0 and spread 1; `restore` is the way back

All but the first work by the batch, on the device.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from clearformer.config import Config
from clearformer.data.augment import AugmentConfig

Share = Annotated[float, Field(ge=0, le=1)]


class ImageConfig(Config):
    """[image]"""

    size: int | None = Field(None, gt=0, description="the side of the square, in pixels; model.size if not given")
    channels: Literal[1, 3] | None = Field(None, description="1 is grey, 3 is colour; model.channels if not given")
    fit: Literal["crop", "pad", "stretch"] = Field("crop", description="how a picture that is not square becomes so")
    margin: float = Field(0.0, ge=0, lt=0.5, description="share cut off at each edge; 0.0625 keeps the middle 7/8")
    mean: tuple[Share, ...] | None = Field(None, description="a channel, of 0 … 1; of the training data if not given")
    std: tuple[Annotated[float, Field(gt=0)], ...] | None = Field(None, description="the same of the spread")
    augment: AugmentConfig = AugmentConfig()

    def model_post_init(self, _: object) -> None:
        for name in ("mean", "std"):
            values = getattr(self, name)
            if values is not None and self.channels is not None and len(values) != self.channels:
                raise ValueError(f"`{name}` has {len(values)} numbers for {self.channels} channels")

    def ready(self, pixels: Tensor, dtype: torch.dtype, is_training: bool) -> Tensor:
        """A batch as a model reads it, another each time while it learns; what is float already stays as it is."""
        if is_training and pixels.dtype == torch.uint8:
            pixels = self.augment(pixels)
        return self.normalise(pixels, dtype)

    def normalise(self, pixels: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """uint8 (B, C, Y, X) as a model reads them; what is float already stays as it is."""
        if pixels.dtype != torch.uint8:
            return pixels
        mean, std = self.statistics(pixels.device, dtype)
        return (pixels.to(dtype) / 255 - mean) / std

    def restore(self, pixels: Tensor) -> Tensor:
        """From what a model reads, or paints, to 0 … 1."""
        mean, std = self.statistics(pixels.device, pixels.dtype)
        return pixels * std + mean

    def statistics(self, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """(C, 1, 1) each."""
        assert self.mean is not None
        assert self.std is not None
        return column(self.mean, device, dtype), column(self.std, device, dtype)


def column(values: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """(C, 1, 1), made on the device: a copy from the host would wait for all that was asked of it before."""
    return torch.stack([torch.full((1, 1), value, device=device, dtype=dtype) for value in values])

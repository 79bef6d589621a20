"""The [image] table of a recipe: how an image becomes the input of a model.

    fit          an image of any shape -> uint8 (C, size, size), once, when the data of a run is prepared     fitting.py
    augment      random changes in training that preserve the class                                           augment/
    normalise    x̂ = (x / 255 − μ_c) / σ_c: every channel has mean 0 and standard deviation 1; inverse: `restore`

`augment` and `normalise` work on batches, on the device.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from clearformer.config import Config
from clearformer.data.augment import AugmentConfig
from clearformer.wording import count

Fraction = Annotated[float, Field(ge=0, le=1)]


class ImageConfig(Config):
    """The [image] table of a recipe: size, channels, normalisation and augmentation of images."""

    size: int | None = Field(None, gt=0, description="height and width in pixels; default: model.size")
    channels: Literal[1, 3] | None = Field(None, description="1 for grey, 3 for colour; default: model.channels")
    fit: Literal["crop", "pad", "stretch"] = Field(
        "crop", description="how to make images square: crop, pad or stretch"
    )
    margin: float = Field(0.0, ge=0, lt=0.5, description="fraction cropped at each edge; 0.0625 leaves the middle 7/8")
    mean: tuple[Fraction, ...] | None = Field(
        None, description="mean of each channel, for pixels from 0 to 1; default: computed from the training data"
    )
    std: tuple[Annotated[float, Field(gt=0)], ...] | None = Field(
        None, description="standard deviation of each channel; default: computed from the training data"
    )
    augment: AugmentConfig = AugmentConfig()

    def model_post_init(self, _: object) -> None:
        for name in ("mean", "std"):
            values = getattr(self, name)
            if values is not None and self.channels is not None and len(values) != self.channels:
                raise ValueError(f"`{name}` has {count(len(values), 'value')} for {count(self.channels, 'channel')}")

    def ready(self, pixels: Tensor, dtype: torch.dtype, is_training: bool) -> Tensor:
        """Augment a batch, in training only, and normalise it. Float pixels are returned unchanged."""
        if is_training and pixels.dtype == torch.uint8:
            pixels = self.augment(pixels)
        return self.normalise(pixels, dtype)

    def normalise(self, pixels: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Convert uint8 (B, C, Y, X) to normalised pixels of type `dtype`. Float pixels are returned unchanged."""
        if pixels.dtype != torch.uint8:
            return pixels
        mean, std = self.statistics(pixels.device, dtype)
        return (pixels.to(dtype) / 255 - mean) / std

    def restore(self, pixels: Tensor) -> Tensor:
        """Invert `normalise`: convert the input or reconstruction of a model to pixels from 0 to 1."""
        mean, std = self.statistics(pixels.device, pixels.dtype)
        return pixels * std + mean

    def statistics(self, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return the mean and the standard deviation of the channels, (C, 1, 1) each."""
        assert self.mean is not None
        assert self.std is not None
        return column(self.mean, device, dtype), column(self.std, device, dtype)


def column(values: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Create a tensor (C, 1, 1) on the device; a copy from the host would wait for all pending work of the device."""
    return torch.stack([torch.full((1, 1), value, device=device, dtype=dtype) for value in values])

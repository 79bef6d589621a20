"""The [image.augment] table: random changes to training images, different each time an image is seen.

    randaugment -> flip -> crop -> erase        change uint8 pixels (B, C, Y, X); each is in a separate file
    mixup                                       mixes normalised pixels and, with them, the target distributions

All draws come from torch's generator of the device, which the loop seeds at every step, so that a resumed run sees the
same images as an uninterrupted one. Draws are independent for each image, and nothing loops over images.
"""

from pydantic import Field
from torch import Tensor

from clearformer.config import Config
from clearformer.data.augment.crop import crop
from clearformer.data.augment.erasing import erase
from clearformer.data.augment.flip import flip
from clearformer.data.augment.randaugment import randaugment


class AugmentConfig(Config):
    """The [image.augment] table of a recipe; every augmentation is off by default."""

    flip: bool = Field(False, description="whether to flip images horizontally with probability 1/2")
    crop: int = Field(0, ge=0, description="padding of the random crop, in pixels; 0 disables it")
    erase: float = Field(0.0, ge=0, le=1, description="probability of random erasing; 0 disables it")
    randaugment: int = Field(0, ge=0, description="number of RandAugment operations per image; 0 disables them")
    magnitude: float = Field(9.0, ge=0, le=30, description="magnitude of the RandAugment operations, from 0 to 30")
    mixup: float = Field(0.0, ge=0, description="α of mixup's Beta(α, α); 0 disables it")

    def __call__(self, pixels: Tensor) -> Tensor:
        """Apply the augmentations that are switched on to pixels, uint8 (B, C, Y, X)."""
        if self.randaugment:
            pixels = randaugment(pixels, self.randaugment, self.magnitude)
        if self.flip:
            pixels = flip(pixels)
        if self.crop:
            pixels = crop(pixels, self.crop)
        return erase(pixels, self.erase) if self.erase else pixels

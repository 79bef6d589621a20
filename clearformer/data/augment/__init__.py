"""[image.augment]: in training, another picture that shows the same, each time a picture is seen.

    randaugment -> flip -> crop -> erase        uint8 (B, C, Y, X) to the same, each in a file of its own
    mixup                                       of what is normalised, and of the answers with it

All of them draw from torch's generator of the device, which the loop seeds at every step: a resumed training sees what
it would have seen. Each picture is drawn for by itself, and nothing loops over pictures.
"""

from pydantic import Field
from torch import Tensor

from clearformer.config import Config
from clearformer.data.augment.crop import crop
from clearformer.data.augment.erasing import erase
from clearformer.data.augment.flip import flip
from clearformer.data.augment.randaugment import randaugment


class AugmentConfig(Config):
    """[image.augment]; nothing is done that is not asked for."""

    flip: bool = Field(False, description="left and right change places, one half of the time")
    crop: int = Field(0, ge=0, description="pixels that a picture may move to each side, black coming in behind it")
    erase: float = Field(0.0, ge=0, le=1, description="how often a rectangle is lost in noise")
    randaugment: int = Field(0, ge=0, description="operations in a row, of fourteen")
    magnitude: float = Field(9.0, ge=0, le=30, description="of these operations, of 30")
    mixup: float = Field(0.0, ge=0, description="α of Beta(α, α), by which pairs of pictures are mixed; 0 mixes none")

    def __call__(self, pixels: Tensor) -> Tensor:
        """uint8 (B, C, Y, X) -> the same."""
        if self.randaugment:
            pixels = randaugment(pixels, self.randaugment, self.magnitude)
        if self.flip:
            pixels = flip(pixels)
        if self.crop:
            pixels = crop(pixels, self.crop)
        return erase(pixels, self.erase) if self.erase else pixels

"""The base class and the common settings of all image networks.

hidden(batch)      h = features(pixels): one vector per image
head(hidden)       W h + b: logits of the classes; with n_classes = 0 there is no head, and the output is h
"""

import torch
from pydantic import Field
from torch import Tensor, nn

from clearformer.config import Config
from clearformer.data.batch import ImageBatch


class SquareConfig(Config):
    """The keys of [model] that all image networks have."""

    preset: str | None = Field(None, description="name of a preset, such as resnet18")
    channels: int = Field(3, gt=0, description="channels of an image: 3 for colour, 1 for greyscale")
    size: int = Field(224, gt=0, description="height and width of an image in pixels")


class ImageModelConfig(SquareConfig):
    """The keys of [model] that all image classifiers have."""

    n_classes: int = Field(
        1000, ge=0, description="number of classes, set from the data in training; 0 returns vectors instead of logits"
    )


class ImageNetwork(nn.Module):
    """The base class of image classifiers: pixels (B, C, Y, X), float and normalised -> logits (B, n_classes)."""

    task = "image-classification"
    batch_class = ImageBatch
    heads: tuple[str, ...] = ("classifier",)

    def __init__(self, config: ImageModelConfig, d_hidden: int) -> None:
        super().__init__()
        self.config = config
        self.classifier = nn.Linear(d_hidden, config.n_classes) if config.n_classes else nn.Identity()

    def forward(self, batch: ImageBatch) -> Tensor:
        return self.head(self.hidden(batch))

    def hidden(self, batch: ImageBatch) -> Tensor:
        """Return one vector for each image, (B, D): the input of the head."""
        return self.features(channels_last(batch))

    def features(self, pixels: Tensor) -> Tensor:
        raise NotImplementedError

    def head(self, hidden: Tensor) -> Tensor:
        return self.classifier(hidden)


def channels_last(batch: ImageBatch) -> Tensor:
    """Return the pixels (B, C, Y, X) in the channels-last memory format, which tensor cores need."""
    return batch.pixels.contiguous(memory_format=torch.channels_last)


def dense(d_in: int, d_out: int, dropout: float) -> nn.Sequential:
    """Build the two wide dense layers at the end of AlexNet and VGG: x (B, C, Y, X) -> (B, d_out)."""
    layers: list[nn.Module] = [nn.Flatten()]
    for n in (d_in, d_out):
        layers += [nn.Linear(n, d_out), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers)

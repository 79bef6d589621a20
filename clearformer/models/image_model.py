"""What the networks for pictures share, as stack.py is what the Transformers do.

hidden(batch)      h = look(pixels): one vector for each picture
head(hidden)       W h + b: a score for every class; with n_classes = 0 there is no head, and h is the answer
"""

import torch
from pydantic import Field
from torch import Tensor, nn

from clearformer.config import Config
from clearformer.data.batch import ImageBatch


class SquareConfig(Config):
    """The keys of [model] that every network for pictures has."""

    preset: str | None = Field(None, description="a name that `clearformer inspect` takes, such as resnet18")
    channels: int = Field(3, gt=0, description="3 for colours, 1 for greys")
    size: int = Field(224, gt=0, description="pixels a side; pictures are square")


class ImageModelConfig(SquareConfig):
    """And those of every classifier of them."""

    n_classes: int = Field(1000, ge=0, description="taken from the data when training; 0: vectors instead of scores")


class PictureModel(nn.Module):
    """pixels (B, C, Y, X), float and normalised -> scores (B, n_classes)."""

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
        """What is judged: (B, D)."""
        return self.look(laid_out(batch))

    def look(self, pixels: Tensor) -> Tensor:
        raise NotImplementedError

    def head(self, hidden: Tensor) -> Tensor:
        return self.classifier(hidden)


def laid_out(batch: ImageBatch) -> Tensor:
    """The pixels (B, C, Y, X), in memory place by place with all channels together, as tensor cores want them."""
    return batch.pixels.contiguous(memory_format=torch.channels_last)


def dense(d_in: int, d_out: int, dropout: float) -> nn.Sequential:
    """The two wide layers, x (B, C, Y, X) -> (B, d_out), that AlexNet and VGG end with."""
    layers: list[nn.Module] = [nn.Flatten()]
    for n in (d_in, d_out):
        layers += [nn.Linear(n, d_out), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers)

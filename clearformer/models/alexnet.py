"""AlexNet, the convolutional network that won ImageNet in 2012 (Krizhevsky et al. 2012).

    227×227×3     conv 11×11, 96, stride 4             55×55×96      pool 3×3, stride 2     27×27×96     norm
                  conv 5×5, 256                        27×27×256     pool 3×3, stride 2     13×13×256    norm
                  conv 3×3, 384, then 384, then 256    13×13×256     pool 3×3, stride 2     6×6×256
                  dense 4096, 4096                     h (B, 4096)

A relu follows every layer. The norm is taken across neighbouring channels (layers/norms.py). The sizes are the paper's,
but two things follow the course notes. The norms come after the pooling layers, in the paper before them. Convolutions
are not grouped; the paper split channels into two halves, for two GPUs. The one-column form (Krizhevsky 2014), as in
torchvision, is narrower and has no norm. The last map is averaged to a grid for the dense layers: 6×6 above, smaller
for small images.
"""

from collections import OrderedDict
from typing import Annotated, Literal

from pydantic import Field, PositiveInt
from torch import Tensor, nn

from clearformer.layers.conv import Conv
from clearformer.layers.geometry import output_size
from clearformer.layers.init import rectified
from clearformer.layers.norms import local_norm
from clearformer.models.image_model import ImageModelConfig, ImageNetwork, dense


class AlexNetConfig(ImageModelConfig):
    """The [model] table of a recipe, for kind = "alexnet". The defaults are the sizes of Krizhevsky et al. 2012."""

    kind: Literal["alexnet"] = "alexnet"
    size: int = Field(227, gt=0, description="height and width of an image in pixels")
    widths: Annotated[tuple[PositiveInt, ...], Field(min_length=5, max_length=5)] = Field(
        (96, 256, 384, 384, 256), description="number of filters in each of the five convolutions"
    )
    first: int = Field(11, gt=0, description="size of the first filters in pixels; 3 or 5 for small images")
    stride: int = Field(4, gt=0, description="stride of the first filters in pixels; 1 for small images")
    padding: int = Field(0, ge=0, description="zero padding on each side of the image in pixels")
    local_norm: bool = Field(True, description="whether norms across channels follow the first two pooling layers")
    grid: int = Field(6, gt=0, description="height and width to which the dense layers' input is average-pooled")
    d_model: int = Field(4096, gt=0, description="width of the dense layers")
    dropout: float = Field(0.5, ge=0, lt=1, description="dropout probability on the dense layers")

    def model_post_init(self, _: object) -> None:
        N = output_size(self.size, self.first, self.stride, self.padding)
        for _pool in range(3):
            N = output_size(N, 3, 2)
        if N < 1:
            raise ValueError(f"size = {self.size} is too small for three pooling layers; set a smaller stride")


class AlexNet(ImageNetwork):
    Config = AlexNetConfig

    def __init__(self, config: AlexNetConfig) -> None:
        super().__init__(config, config.d_model)
        one, two, three, four, five = config.widths
        norms = [("norm1", local_norm()), ("norm2", local_norm())] if config.local_norm else [(), ()]
        layers = [
            ("conv1", Conv(config.channels, one, config.first, config.stride, config.padding, norm=False)),
            ("pool1", nn.MaxPool2d(3, stride=2)),
            norms[0],
            ("conv2", Conv(one, two, 5, norm=False)),
            ("pool2", nn.MaxPool2d(3, stride=2)),
            norms[1],
            ("conv3", Conv(two, three, 3, norm=False)),
            ("conv4", Conv(three, four, 3, norm=False)),
            ("conv5", Conv(four, five, 3, norm=False)),
            ("pool5", nn.MaxPool2d(3, stride=2)),
        ]
        self.layers = nn.Sequential(OrderedDict(layer for layer in layers if layer))
        self.pool = nn.AdaptiveAvgPool2d(config.grid)
        self.dense = dense(five * config.grid**2, config.d_model, config.dropout)
        self.layers.apply(rectified)
        self.dense.apply(rectified)

    def features(self, pixels: Tensor) -> Tensor:
        return self.dense(self.pool(self.layers(pixels)))

"""VGG, a deep sequence of 3×3 convolutions (Simonyan & Zisserman 2015).

    x = maxpool(relu(3×3) … relu(3×3))      five stages, each halving height and width
    h = two dense layers with relu          (B, D)

Two 3×3 filters see as far as one 5×5, three as far as one 7×7, with 18 and 27 weights per pair of channels instead of
25 and 49, and a relu after each.
"""

from typing import Literal

from pydantic import Field, PositiveInt
from torch import Tensor, nn

from clearformer.layers.conv import Conv
from clearformer.layers.init import rectified
from clearformer.models.image_model import ImageModelConfig, ImageNetwork, dense
from clearformer.wording import count


class VGGConfig(ImageModelConfig):
    """The [model] table of a recipe, for kind = "vgg". The defaults are VGG-16."""

    kind: Literal["vgg"] = "vgg"
    depths: tuple[PositiveInt, ...] = Field(
        (2, 2, 3, 3, 3), min_length=1, description="number of convolutions in each stage"
    )
    widths: tuple[PositiveInt, ...] = Field(
        (64, 128, 256, 512, 512), description="number of filters in each stage; as many entries as depths"
    )
    batch_norm: bool = Field(
        False, description="whether batch norm follows each convolution, which keeps its bias, as in torchvision"
    )
    grid: int = Field(
        7, gt=0, description="height and width to which the dense layers' input is average-pooled; 1 for 32×32 images"
    )
    d_model: int = Field(4096, gt=0, description="width of the dense layers")
    dropout: float = Field(0.5, ge=0, lt=1, description="dropout probability on the dense layers")

    def model_post_init(self, _: object) -> None:
        if len(self.widths) != len(self.depths):
            raise ValueError(
                f"depths has {count(len(self.depths), 'stage')}, but widths has {len(self.widths)}; "
                f"both need one entry per stage"
            )
        if self.size < (least := 2 ** len(self.depths)):
            raise ValueError(
                f"size = {self.size} is too small to be halved by {count(len(self.depths), 'stage')}; "
                f"set size to at least {least}"
            )


class VGG(ImageNetwork):
    Config = VGGConfig

    def __init__(self, config: VGGConfig) -> None:
        super().__init__(config, config.d_model)
        stages, c_in = [], config.channels
        for n_convs, c_out in zip(config.depths, config.widths):
            convs = [Conv(c_out if j else c_in, c_out, 3, norm=config.batch_norm, bias=True) for j in range(n_convs)]
            stages.append(nn.Sequential(*convs, nn.MaxPool2d(2)))
            c_in = c_out
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(config.grid)
        self.dense = dense(c_in * config.grid**2, config.d_model, config.dropout)
        self.stages.apply(rectified)
        self.dense.apply(rectified)

    def features(self, pixels: Tensor) -> Tensor:
        return self.dense(self.pool(self.stages(pixels)))

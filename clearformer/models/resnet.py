"""ResNet, the network that deepens without getting worse (He et al. 2016).

x   = stem(pixels)                       7×7 of stride 2 and a 3×3 pool, or, for small pictures, one 3×3
x   = relu(f(x) + shortcut(x)) …         stages of blocks; each but the first halves the sides   layers/residual.py
h   = mean over all places               (B, D)

18, 34              two 3×3 a block              224×224
50, 101, 152        bottlenecks                  224×224; a stride is the 3×3's, as in torchvision
20, 32, … 1202      6n + 2 layers, option A      32×32, section 4.2 of the paper
plain               the same without shortcuts: plain56 ends above plain20 even in training, which began it all
"""

from typing import Literal, NamedTuple

from pydantic import Field, PositiveInt
from torch import Tensor, nn

from clearformer.layers.conv import Conv
from clearformer.layers.init import rectified
from clearformer.layers.residual import BlockKind, Residual, Shortcut
from clearformer.models.image_model import ImageModelConfig, PictureModel


class Place(NamedTuple):
    """Where a block stands, and what it does to the shape."""

    stage: int
    number: int
    c_in: int
    c_out: int
    stride: int

    @property
    def keeps_shape(self) -> bool:
        return self.stride == 1 and self.c_in == self.c_out


class ResNetConfig(ImageModelConfig):
    """[model] of kind "resnet". The defaults are ResNet-50."""

    kind: Literal["resnet"] = "resnet"
    stem: Literal["7x7", "3x3"] = Field("7x7", description="3x3, without a pool, for small pictures")
    stem_width: int = Field(64, gt=0, description="filters of the stem")
    block: BlockKind = "bottleneck"
    depths: tuple[PositiveInt, ...] = Field((3, 4, 6, 3), min_length=1, description="blocks of each stage")
    widths: tuple[PositiveInt, ...] = Field((256, 512, 1024, 2048), description="channels that leave each stage")
    shortcut: Shortcut = "projection"

    def model_post_init(self, _: object) -> None:
        if len(self.widths) != len(self.depths):
            raise ValueError(f"{len(self.depths)} depths and {len(self.widths)} widths are not of the same stages")
        if self.block == "bottleneck" and any(width % 4 for width in self.widths):
            raise ValueError(f"widths = {self.widths} must be multiples of 4, as a bottleneck is a quarter")
        if self.shortcut == "padding" and [*self.widths] != sorted((self.stem_width, *self.widths))[1:]:
            raise ValueError(f"stem_width = {self.stem_width} and widths = {self.widths} must grow to be padded")

    @property
    def places(self) -> list[Place]:
        """Every block in order."""
        found, c_in = [], self.stem_width
        for stage, (n_blocks, c_out) in enumerate(zip(self.depths, self.widths)):
            for number in range(n_blocks):
                found.append(Place(stage, number, c_in, c_out, 2 if stage and not number else 1))
                c_in = c_out
        return found


class ResNet(PictureModel):
    Config = ResNetConfig

    def __init__(self, config: ResNetConfig) -> None:
        super().__init__(config, config.widths[-1])
        is_large, width = config.stem == "7x7", config.stem_width
        self.stem = Conv(config.channels, width, 7, stride=2) if is_large else Conv(config.channels, width, 3)
        self.stem_pool = nn.MaxPool2d(3, stride=2, padding=1) if is_large else nn.Identity()
        self.stages = nn.Sequential(*(nn.Sequential() for _ in config.depths))
        for place in config.places:
            block = Residual(place.c_in, place.c_out, place.stride, config.block, config.shortcut)
            self.stages[place.stage].append(block)  # type: ignore[operator]
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.stem.apply(rectified)
        self.stages.apply(rectified)

    def look(self, pixels: Tensor) -> Tensor:
        return self.pool(self.stages(self.stem_pool(self.stem(pixels)))).flatten(1)

"""ResNet, whose shortcuts make very deep networks trainable (He et al. 2016).

x   = stem(pixels)                       7×7 with stride 2 and a 3×3 pool, or one 3×3 for small images
x   = relu(f(x) + shortcut(x)) …         stages of blocks; all but the first halve the size      layers/residual.py
h   = mean over all pixels               (B, D)

18, 34              two 3×3 per block            224×224
50, 101, 152        bottlenecks                  224×224; the 3×3 has the stride, as in torchvision
20, 32, … 1202      6n + 2 layers, option A      32×32, section 4.2 of the paper
plain               networks without shortcuts: even the training error is higher for plain56 than for
                    plain20, the observation that motivated ResNet
"""

from typing import Literal, NamedTuple

from pydantic import Field, PositiveInt
from torch import Tensor, nn

from clearformer.layers.conv import Conv
from clearformer.layers.init import rectified
from clearformer.layers.residual import BlockKind, Residual, Shortcut
from clearformer.models.image_model import ImageModelConfig, ImageNetwork
from clearformer.wording import count


class BlockShape(NamedTuple):
    """The position of a block in the network, and its channels and stride."""

    stage: int
    number: int
    c_in: int
    c_out: int
    stride: int

    @property
    def keeps_shape(self) -> bool:
        return self.stride == 1 and self.c_in == self.c_out


class ResNetConfig(ImageModelConfig):
    """The [model] table of a recipe, for kind = "resnet". The defaults are ResNet-50."""

    kind: Literal["resnet"] = "resnet"
    stem: Literal["7x7", "3x3"] = Field("7x7", description="first layer: 7x7 with pooling, or 3x3 for small images")
    stem_width: int = Field(64, gt=0, description="number of filters in the stem")
    block: BlockKind = Field("bottleneck", description="type of the residual blocks")
    depths: tuple[PositiveInt, ...] = Field((3, 4, 6, 3), min_length=1, description="number of blocks in each stage")
    widths: tuple[PositiveInt, ...] = Field(
        (256, 512, 1024, 2048), description="output channels of each stage; as many entries as depths"
    )
    shortcut: Shortcut = Field(
        "projection",
        description="type of shortcut in blocks that change the shape; 'none' removes the shortcuts of all blocks",
    )

    def model_post_init(self, _: object) -> None:
        if len(self.widths) != len(self.depths):
            raise ValueError(
                f"depths has {count(len(self.depths), 'stage')}, but widths has {len(self.widths)}; "
                f"both need one entry per stage"
            )
        if self.block == "bottleneck" and any(width % 4 for width in self.widths):
            raise ValueError(f"widths = {self.widths} must be multiples of 4: a bottleneck narrows to a quarter")
        if self.shortcut == "padding" and [*self.widths] != sorted((self.stem_width, *self.widths))[1:]:
            raise ValueError(
                f'shortcut = "padding" needs widths that never decrease, from stem_width = {self.stem_width} '
                f"through widths = {self.widths}"
            )

    @property
    def block_shapes(self) -> list[BlockShape]:
        """The shapes of all blocks, in order."""
        shapes, c_in = [], self.stem_width
        for stage, (n_blocks, c_out) in enumerate(zip(self.depths, self.widths)):
            for number in range(n_blocks):
                shapes.append(BlockShape(stage, number, c_in, c_out, 2 if stage and not number else 1))
                c_in = c_out
        return shapes


class ResNet(ImageNetwork):
    Config = ResNetConfig

    def __init__(self, config: ResNetConfig) -> None:
        super().__init__(config, config.widths[-1])
        is_large, width = config.stem == "7x7", config.stem_width
        self.stem = Conv(config.channels, width, 7, stride=2) if is_large else Conv(config.channels, width, 3)
        self.stem_pool = nn.MaxPool2d(3, stride=2, padding=1) if is_large else nn.Identity()
        self.stages = nn.Sequential(*(nn.Sequential() for _ in config.depths))
        for shape in config.block_shapes:
            block = Residual(shape.c_in, shape.c_out, shape.stride, config.block, config.shortcut)
            self.stages[shape.stage].append(block)  # type: ignore[operator]
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.stem.apply(rectified)
        self.stages.apply(rectified)

    def features(self, pixels: Tensor) -> Tensor:
        return self.pool(self.stages(self.stem_pool(self.stem(pixels)))).flatten(1)

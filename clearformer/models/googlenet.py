"""GoogLeNet: nine blocks with filters of several sizes (Szegedy et al. 2015).

    x = stem(pixels)                       7×7, pool, 1×1, 3×3, pool
    x = blocks 3a 3b | 4a … 4e | 5a 5b     layers/inception.py, a pool between the stages
    h = mean over all pixels               (B, D)

    logits = W h                           and, in training, the logits of two small networks on 4a and 4d, which give
                                           the early blocks a gradient of their own

`answers(batch)` returns the logits of the head, then of each auxiliary network. If a model has this method, the
objective adds the losses of the auxiliary networks in training, with the paper's weight of 0.3. Inference calls
`head(hidden(batch))`, which skips them.

In torchvision's version, batch norms replace the biases and the norms across channels, the largest filters are 3×3
instead of 5×5, and the last pool is 2×2 instead of 3×3.
"""

from functools import partial
from typing import Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from clearformer.data.batch import ImageBatch
from clearformer.layers.conv import Conv
from clearformer.layers.geometry import output_size
from clearformer.layers.inception import Inception, Mixture
from clearformer.layers.init import rectified
from clearformer.layers.norms import local_norm
from clearformer.models.image_model import ImageModelConfig, ImageNetwork, channels_last

STAGES: tuple[tuple[Mixture, ...], ...] = (  # table 1 of the paper
    (
        (64, 96, 128, 16, 32, 32),
        (128, 128, 192, 32, 96, 64),
    ),
    (
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
    ),
    (
        (256, 160, 320, 32, 128, 128),
        (384, 192, 384, 48, 128, 128),
    ),
)


class GoogLeNetConfig(ImageModelConfig):
    """The [model] table of a recipe, for kind = "googlenet". The defaults are the settings of the paper."""

    kind: Literal["googlenet"] = "googlenet"
    upsample: int | None = Field(None, gt=0, description="height and width in pixels to which images are enlarged")
    stem: bool = Field(True, description="whether there is a stem; without it, the first block reads the image")
    stages: tuple[tuple[Mixture, ...], ...] = Field(
        STAGES, description="six channel counts per block, as in layers/inception.py"
    )
    auxiliary: tuple[str, ...] = Field(("4a", "4d"), description="names of the blocks with an auxiliary network")
    batch_norm: bool = Field(
        False, description="whether batch norm follows each convolution, instead of two norms across channels"
    )
    large: Literal[3, 5] = Field(5, description="size of the largest filters in pixels; 3 in torchvision")
    last_pool: Literal[2, 3] = Field(3, description="size of the last pool in pixels; 2 in torchvision")
    dropout: float = Field(0.4, ge=0, lt=1, description="dropout probability on the head's input")

    def model_post_init(self, _: object) -> None:
        blocks = [name for name, _ in named_blocks(self.stages)]
        if unknown := [name for name in self.auxiliary if name not in blocks]:
            raise ValueError(f"auxiliary: unknown block `{unknown[0]}`; choose from {', '.join(blocks)}")
        if self.auxiliary and not self.n_classes:
            raise ValueError("auxiliary networks need classes; with n_classes = 0, set auxiliary = []")
        N = self.upsample or self.size
        N = halved(halved(output_size(N, 7, 2, 3), 3), 3) if self.stem else N
        for i in range(1, len(self.stages)):
            N = halved(N, self.last_pool if i == len(self.stages) - 1 else 3)
        if N < 1:
            raise ValueError(
                f"size = {self.size} is too small for the pooling layers; set upsample = 96 to enlarge images"
            )


def halved(N: int, F: int) -> int:
    """Return the size after pooling with stride 2, including a last window that crosses the border."""
    return output_size(N + 1, F, 2)


def named_blocks(stages: tuple[tuple[Mixture, ...], ...]) -> list[tuple[str, Mixture]]:
    """Return the blocks with their names in the paper: 3a, 3b, 4a …; stages 1 and 2 are the stem."""
    return [(f"{3 + i}{chr(97 + j)}", mixture) for i, stage in enumerate(stages) for j, mixture in enumerate(stage)]


class GoogLeNet(ImageNetwork):
    Config = GoogLeNetConfig
    heads = ("classifier", "auxiliary")
    config: GoogLeNetConfig

    def __init__(self, config: GoogLeNetConfig) -> None:
        conv, c_in = partial(Conv, norm=config.batch_norm, eps=1e-3), 192 if config.stem else config.channels
        blocks: dict[str, nn.Module] = {}
        auxiliary: dict[str, nn.Module] = {}
        for name, mixture in named_blocks(config.stages):
            if name.endswith("a") and blocks:
                is_last = name == f"{2 + len(config.stages)}a"
                blocks[f"pool{name[:-1]}"] = nn.MaxPool2d(config.last_pool if is_last else 3, stride=2, ceil_mode=True)
            blocks[name] = block = Inception(c_in, mixture, conv, config.large)
            c_in = block.channels
            if name in config.auxiliary:
                auxiliary[name] = Auxiliary(c_in, config.n_classes, conv)
        super().__init__(config, c_in)
        self.stem = build_stem(config, conv) if config.stem else nn.Identity()
        self.blocks, self.auxiliary = nn.ModuleDict(blocks), nn.ModuleDict(auxiliary)
        self.pool, self.dropout = nn.AdaptiveAvgPool2d(1), nn.Dropout(config.dropout)
        self.stem.apply(rectified)
        self.blocks.apply(rectified)

    def features(self, pixels: Tensor) -> Tensor:
        return self.all_features(pixels)[0]

    def head(self, hidden: Tensor) -> Tensor:
        return self.classifier(self.dropout(hidden))

    def answers(self, batch: ImageBatch) -> list[Tensor]:
        """Return the logits (B, n_classes) of the head, then of each auxiliary network, for training."""
        hidden, maps = self.all_features(channels_last(batch))
        return [self.head(hidden), *(self.auxiliary[name](x) for name, x in maps.items())]

    def all_features(self, pixels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the image vectors (B, D), and the outputs of the blocks with an auxiliary network."""
        if self.config.upsample is not None:
            pixels = F.interpolate(pixels, size=(self.config.upsample,) * 2, mode="bilinear")
        x, maps = self.stem(pixels), {}
        for name, block in self.blocks.items():
            x = block(x)
            if name in self.auxiliary:
                maps[name] = x
        return self.pool(x).flatten(1), maps


def build_stem(config: GoogLeNetConfig, conv: partial[Conv]) -> nn.Sequential:
    pools = [nn.MaxPool2d(3, stride=2, ceil_mode=True) for _ in range(2)]
    norms = [nn.Identity() if config.batch_norm else local_norm() for _ in range(2)]
    first, reduce, second = conv(config.channels, 64, 7, 2), conv(64, 64, 1), conv(64, 192, 3)
    return nn.Sequential(first, pools[0], norms[0], reduce, second, norms[1], pools[1])


class Auxiliary(nn.Module):
    """An auxiliary classifier, (B, C, Y, X) -> logits (B, n_classes), which averages its input to a 4×4 grid."""

    def __init__(self, c_in: int, n_classes: int, conv: partial[Conv]) -> None:
        super().__init__()
        self.pool, self.conv = nn.AdaptiveAvgPool2d(4), conv(c_in, 128, 1)
        self.dense, self.dropout = nn.Linear(128 * 4 * 4, 1024), nn.Dropout(0.7)
        self.classifier = nn.Linear(1024, n_classes)
        self.conv.apply(rectified)
        self.dense.apply(rectified)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(self.pool(x)).flatten(1)
        return self.classifier(self.dropout(F.relu(self.dense(x))))

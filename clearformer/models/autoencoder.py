"""Autoencoders: a picture through a few numbers, and back (Hinton & Salakhutdinov 2006; Kingma & Welling 2014).

    z = f(x)        the code, d_code numbers                 x̂ = g(z)        the picture again

    dense           f: W relu(W x) …                         g: the same backwards
    conv            f: relu(3×3) of stride 2 …, then W       g: W, then each map enlarged and 3×3 …

    point           z = W h
    gaussian        z ~ N(μ, σ²),  [μ ; log σ²] = W h        variational: near codes stand for like pictures

Dense without widths is linear both ways, and finds the subspace of PCA (layers/pca.py). Enlarging by repetition before
a filter of stride 1 leaves no chequers behind, as a transposed convolution does (Odena et al. 2016).
"""

from itertools import accumulate, pairwise
from typing import Literal

from pydantic import Field, PositiveInt
from torch import Tensor, nn

from clearformer.data.batch import ImageBatch
from clearformer.layers.conv import Conv
from clearformer.layers.geometry import output_size
from clearformer.layers.init import rectified, xavier
from clearformer.models.image_model import SquareConfig, laid_out


class AutoencoderConfig(SquareConfig):
    """[model] of kind "autoencoder". The defaults are for 28×28."""

    kind: Literal["autoencoder"] = "autoencoder"
    size: int = Field(28, gt=0, description="pixels a side; pictures are square")
    channels: int = Field(1, gt=0, description="3 for colours, 1 for greys")
    form: Literal["dense", "conv"] = "conv"
    widths: tuple[PositiveInt, ...] = Field((32, 64), description="numbers, or maps, of each layer before the code")
    code: Literal["point", "gaussian"] = "point"
    d_code: int = Field(32, gt=0, description="numbers that stand for a picture")


class Autoencoder(nn.Module):
    """pixels (B, C, Y, X), float and normalised -> the same shape; `hidden` is the code."""

    Config = AutoencoderConfig
    task = "reconstruction"
    batch_class = ImageBatch

    def __init__(self, config: AutoencoderConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder, self.decoder, d_inner = (dense if config.form == "dense" else conv)(config)
        n_numbers = 2 if config.code == "gaussian" else 1  # each number of a code, or its mean and log-variance
        self.to_code = nn.Linear(d_inner, n_numbers * config.d_code)
        self.from_code = nn.Linear(config.d_code, d_inner)
        self.apply(rectified)
        self.to_code.apply(xavier)
        self.from_code.apply(xavier)

    def forward(self, batch: ImageBatch) -> Tensor:
        return self.head(self.hidden(batch))

    def hidden(self, batch: ImageBatch) -> Tensor:
        """The code, (B, d_code); of a gaussian one, the mean."""
        return self.code(batch)[0]

    def code(self, batch: ImageBatch) -> tuple[Tensor, Tensor | None]:
        """μ and log σ² (B, d_code); of a point there is only the first."""
        found = self.to_code(self.encoder(laid_out(batch)))
        if self.config.code == "point":
            return found, None
        mean, log_variance = found.chunk(2, dim=-1)
        return mean, log_variance

    def head(self, hidden: Tensor) -> Tensor:
        return self.decoder(self.from_code(hidden))


def dense(config: AutoencoderConfig) -> tuple[nn.Module, nn.Module, int]:
    """Pixels -> a vector, and back, and the width of what is between."""
    shape = config.channels, config.size, config.size
    widths = [config.channels * config.size**2, *config.widths]
    ways = list(pairwise(widths))
    there = [layer for n, m in ways for layer in (nn.Linear(n, m), nn.ReLU())]
    back = [layer for n, m in reversed(ways) for layer in (nn.ReLU(), nn.Linear(m, n))]
    return nn.Sequential(nn.Flatten(), *there), nn.Sequential(*back, nn.Unflatten(1, shape)), widths[-1]


def conv(config: AutoencoderConfig) -> tuple[nn.Module, nn.Module, int]:
    """The same by maps, each half as large as the one before, rounded up."""
    ways = list(pairwise([config.channels, *config.widths]))
    sizes = list(accumulate(ways, lambda N, _: output_size(N, 3, 2, 1), initial=config.size))
    there = [Conv(n, m, 3, stride=2, norm=False) for n, m in ways]
    back = [
        layer
        for (n, m), N in zip(reversed(ways), sizes[-2::-1])
        for layer in (nn.ReLU(), nn.Upsample(N), Conv(m, n, 3, norm=False, relu=False))
    ]
    shape = ways[-1][1] if ways else config.channels, sizes[-1], sizes[-1]
    d_inner = shape[0] * sizes[-1] ** 2
    return nn.Sequential(*there, nn.Flatten()), nn.Sequential(nn.Unflatten(1, shape), *back), d_inner

"""Autoencoders, which compress an image to a code and back (Hinton & Salakhutdinov 2006; Kingma & Welling 2014).

    z = f(x)        the code, d_code features                x̂ = g(z)        the reconstruction

    dense           f: W relu(W x) …                         g: the same layers in reverse
    conv            f: relu(3×3) with stride 2 …, then W     g: W, then upsampling and 3×3 …

    point           z = W h
    gaussian        z ~ N(μ, σ²),  [μ ; log σ²] = W h        variational: similar codes give similar images

A dense autoencoder without widths is linear and learns the subspace of PCA (layers/pca.py). Upsampling by repetition
before a filter of stride 1 avoids the checkerboard artefacts of a transposed convolution (Odena et al. 2016).
"""

from itertools import accumulate, pairwise
from typing import Literal

from pydantic import Field, PositiveInt
from torch import Tensor, nn

from clearformer.data.batch import ImageBatch
from clearformer.layers.conv import Conv
from clearformer.layers.geometry import output_size
from clearformer.layers.init import rectified, xavier
from clearformer.models.image_model import SquareConfig, channels_last


class AutoencoderConfig(SquareConfig):
    """The [model] table of a recipe, for kind = "autoencoder". The defaults are for images of 28×28 pixels."""

    kind: Literal["autoencoder"] = "autoencoder"
    size: int = Field(28, gt=0, description="height and width of an image in pixels")
    channels: int = Field(1, gt=0, description="channels of an image: 3 for colour, 1 for greyscale")
    form: Literal["dense", "conv"] = Field("conv", description="type of the layers in the encoder and the decoder")
    widths: tuple[PositiveInt, ...] = Field(
        (32, 64), description="features (dense) or channels (conv) of each encoder layer before the code"
    )
    code: Literal["point", "gaussian"] = Field(
        "point", description="code of an image: a vector, or a normal distribution (variational autoencoder)"
    )
    d_code: int = Field(32, gt=0, description="width of the code")


class Autoencoder(nn.Module):
    """Reconstruct pixels (B, C, Y, X), float and normalised, in the same shape. `hidden` returns the code."""

    Config = AutoencoderConfig
    task = "reconstruction"
    batch_class = ImageBatch

    def __init__(self, config: AutoencoderConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder, self.decoder, d_inner = (dense if config.form == "dense" else conv)(config)
        n_outputs = 2 if config.code == "gaussian" else 1  # a gaussian feature has a mean and a log-variance
        self.to_code = nn.Linear(d_inner, n_outputs * config.d_code)
        self.from_code = nn.Linear(config.d_code, d_inner)
        self.apply(rectified)
        self.to_code.apply(xavier)
        self.from_code.apply(xavier)

    def forward(self, batch: ImageBatch) -> Tensor:
        return self.head(self.hidden(batch))

    def hidden(self, batch: ImageBatch) -> Tensor:
        """Return the code (B, d_code), or its mean if it is gaussian."""
        return self.code(batch)[0]

    def code(self, batch: ImageBatch) -> tuple[Tensor, Tensor | None]:
        """Return μ and log σ², each (B, d_code); log σ² is None if the code is a point."""
        code = self.to_code(self.encoder(channels_last(batch)))
        if self.config.code == "point":
            return code, None
        mean, log_variance = code.chunk(2, dim=-1)
        return mean, log_variance

    def head(self, hidden: Tensor) -> Tensor:
        return self.decoder(self.from_code(hidden))


def dense(config: AutoencoderConfig) -> tuple[nn.Module, nn.Module, int]:
    """Build an encoder from pixels to a vector and a decoder back to pixels; also returns the width of the vector."""
    shape = config.channels, config.size, config.size
    widths = [config.channels * config.size**2, *config.widths]
    sizes = list(pairwise(widths))
    encoder = [layer for n, m in sizes for layer in (nn.Linear(n, m), nn.ReLU())]
    decoder = [layer for n, m in reversed(sizes) for layer in (nn.ReLU(), nn.Linear(m, n))]
    return nn.Sequential(nn.Flatten(), *encoder), nn.Sequential(*decoder, nn.Unflatten(1, shape)), widths[-1]


def conv(config: AutoencoderConfig) -> tuple[nn.Module, nn.Module, int]:
    """Build a convolutional encoder and decoder; returns the same three values as `dense`.

    Each encoder layer halves the size of the map, rounded up.
    """
    channels = list(pairwise([config.channels, *config.widths]))
    sizes = list(accumulate(channels, lambda N, _: output_size(N, 3, 2, 1), initial=config.size))
    encoder = [Conv(n, m, 3, stride=2, norm=False) for n, m in channels]
    decoder = [
        layer
        for (n, m), N in zip(reversed(channels), sizes[-2::-1])
        for layer in (nn.ReLU(), nn.Upsample(N), Conv(m, n, 3, norm=False, relu=False))
    ]
    shape = channels[-1][1] if channels else config.channels, sizes[-1], sizes[-1]
    d_inner = shape[0] * sizes[-1] ** 2
    return nn.Sequential(*encoder, nn.Flatten()), nn.Sequential(nn.Unflatten(1, shape), *decoder), d_inner

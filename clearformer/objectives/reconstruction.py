"""Autoencoding: reconstruct an image from its code.

    loss = Σ (x̂ − x)² + β KL              x̂ = g(z),  z = f(x + s ε),  ε ~ N(0, 1)
    KL   = −½ Σ (1 + log σ² − μ² − σ²)     from N(μ, σ²) to N(0, 1) if codes are Gaussian, otherwise 0

s > 0 trains a denoising autoencoder: the target is the image without the noise (Vincent et al. 2010). A Gaussian code
is sampled, z = μ + σ ε. With β = 1 the loss is then, up to a constant, the negative evidence lower bound for pixels
N(x̂, ½) (Kingma & Welling 2014); β > 1 favours disentangled codes (Higgins et al. 2017).
"""

import torch
from pydantic import Field
from torch import Tensor, nn

from clearformer.config import Config
from clearformer.data.batch import ImageBatch
from clearformer.data.pixels import ImageConfig
from clearformer.objectives.cross_entropy import Loss


class ReconstructionConfig(Config):
    """The [objective] table of a recipe: settings of reconstruction."""

    kind: str = "reconstruction"
    noise: float = Field(
        0.0, ge=0, description="standard deviation s of the noise added to the input, whose standard deviation is 1"
    )
    beta: float = Field(1.0, ge=0, description="weight β of the KL divergence of Gaussian codes")


class Reconstruction:
    Config = ReconstructionConfig
    task = "reconstruction"
    tables = ("image",)

    def __init__(self, config: ReconstructionConfig, image: ImageConfig | None = None) -> None:
        self.config, self.image = config, image or ImageConfig()

    def __call__(self, model: nn.Module, batch: ImageBatch) -> Loss:
        pixels = self.image.ready(batch.pixels, next(model.parameters()).dtype, model.training)
        noisy = pixels + self.config.noise * torch.randn_like(pixels) if self.config.noise else pixels
        mean, log_variance = model.code(ImageBatch(noisy, n_tokens=batch.n_tokens))  # type: ignore[operator]
        if log_variance is None:
            return Loss(squared_error(model.head(mean), pixels), batch.n_tokens)  # type: ignore[operator]
        sampled = mean + (log_variance / 2).exp() * torch.randn_like(mean)
        error = squared_error(model.head(sampled), pixels)  # type: ignore[operator]
        return Loss(error + self.config.beta * kl(mean, log_variance), batch.n_tokens)


def squared_error(reconstructed: Tensor, pixels: Tensor) -> Tensor:
    """Sum the squared error over all pixels of all images, in float32 or better."""
    return (reconstructed.to(torch.promote_types(reconstructed.dtype, torch.float32)) - pixels).square().sum()


def kl(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Sum the KL divergence from N(μ, σ²) to N(0, 1) over all features of all codes, in float32 or better."""
    exact = torch.promote_types(mean.dtype, torch.float32)
    mean, log_variance = mean.to(exact), log_variance.to(exact)
    return -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()

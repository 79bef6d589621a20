"""Give a picture back from its code.

    loss = Σ (x̂ − x)² + β KL              x̂ = g(z),  z = f(x + s ε),  ε ~ N(0, 1)
    KL   = −½ Σ (1 + log σ² − μ² − σ²)     how far N(μ, σ²) is from N(0, 1), where codes are gaussian; else 0

s > 0 makes a network denoise: what it gives back is the picture without the noise (Vincent et al. 2010). Of a gaussian
code z is drawn, z = μ + σ ε; with β = 1 the loss is then the evidence lower bound of pixels N(x̂, ½), turned round and
up to a constant (Kingma & Welling 2014), and β > 1 asks for codes that are told apart (Higgins et al. 2017).
"""

import torch
from pydantic import Field
from torch import Tensor, nn

from clearformer.config import Config
from clearformer.data.batch import ImageBatch
from clearformer.data.pixels import ImageConfig
from clearformer.objectives.cross_entropy import Loss


class ReconstructionConfig(Config):
    """[objective]"""

    kind: str = "reconstruction"
    noise: float = Field(0.0, ge=0, description="s, in the spread of all pixels")
    beta: float = Field(1.0, ge=0, description="β, the weight of the KL of gaussian codes")


class Reconstruction:
    Config = ReconstructionConfig
    task = "reconstruction"
    tables = ("image",)

    def __init__(self, config: ReconstructionConfig, image: ImageConfig | None = None) -> None:
        self.config, self.image = config, image or ImageConfig()

    def __call__(self, model: nn.Module, batch: ImageBatch) -> Loss:
        pixels = self.image.ready(batch.pixels, next(model.parameters()).dtype, model.training)
        seen = pixels + self.config.noise * torch.randn_like(pixels) if self.config.noise else pixels
        mean, log_variance = model.code(ImageBatch(seen, n_tokens=batch.n_tokens))  # type: ignore[operator]
        if log_variance is None:
            return Loss(squared_error(model.head(mean), pixels), batch.n_tokens)  # type: ignore[operator]
        drawn = mean + (log_variance / 2).exp() * torch.randn_like(mean)
        error = squared_error(model.head(drawn), pixels)  # type: ignore[operator]
        return Loss(error + self.config.beta * kl(mean, log_variance), batch.n_tokens)


def squared_error(found: Tensor, pixels: Tensor) -> Tensor:
    """Summed over all pixels of all pictures, in float32 at least."""
    return (found.to(torch.promote_types(found.dtype, torch.float32)) - pixels).square().sum()


def kl(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Of N(μ, σ²) from N(0, 1), summed over all numbers of all codes, likewise."""
    exact = torch.promote_types(mean.dtype, torch.float32)
    mean, log_variance = mean.to(exact), log_variance.to(exact)
    return -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()

"""Batch norm of tokens: each feature is normalised over a batch, while layer norm normalises each token by itself.

    BatchNorm(x) = (x − μ) / √(σ² + ε) · γ + β,    μ, σ² of each feature over all real tokens of the batch;
                                                   at inference, their running averages      Ioffe & Szegedy 2015

Padding is excluded: otherwise the output for a text would depend on the lengths of the other texts. At inference the
norm is a fixed linear map of each token, so that a text can be decoded token by token.
"""

import torch
from torch import Tensor, nn


class TokenBatchNorm(nn.BatchNorm1d):
    """torch's BatchNorm1d for x (…, D). `real` (…), True at tokens, is set during the training pass of a stack.

    As in torch, the running variance is the unbiased one, divided by n − 1, and the output uses the biased one.
    """

    real: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.real is None or not self.training:
            return super().forward(x.flatten(0, -2)).view_as(x)
        exact = torch.promote_types(x.dtype, torch.float32)
        mean, variance, n = moments(x.to(exact), self.real)
        self.follow(mean.detach(), (variance * n / (n - 1).clamp(min=1)).detach())
        return ((x - mean) / (variance + self.eps).sqrt() * self.weight + self.bias).to(x.dtype)

    def line(self) -> tuple[Tensor, Tensor]:
        """Return a and b of the map x → a x + b that the norm is at inference, (D,) each."""
        assert self.running_mean is not None
        assert self.running_var is not None
        factor = self.weight / (self.running_var + self.eps).sqrt()
        return factor, self.bias - self.running_mean * factor

    @torch.no_grad()
    def follow(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics towards the statistics of a batch: μ ← (1 − m) μ + m mean(batch)."""
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.num_batches_tracked.add_(1)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
        self.running_var.lerp_(variance.to(self.running_var.dtype), self.momentum)


def moments(x: Tensor, real: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean and biased variance (D,) of x (…, D) where `real` (…) is True, and the number of such positions."""
    weight = real.unsqueeze(-1).to(x.dtype)
    axes = tuple(range(x.dim() - 1))
    n = weight.sum().clamp(min=1)
    mean = (x * weight).sum(axes) / n
    return mean, ((x - mean).square() * weight).sum(axes) / n, n


def batch_norm(x: Tensor, real: Tensor, gain: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Normalise each feature of x (…, D) over the positions where `real` (…) is True: the equation."""
    tokens = x[real]
    mean = tokens.mean(0)
    variance = (tokens - mean).square().mean(0)
    return (x - mean) / (variance + eps).sqrt() * gain + bias

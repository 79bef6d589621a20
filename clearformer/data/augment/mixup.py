"""Mixup: interpolate between two images and between their target distributions (Zhang et al. 2018).

x̃ = λ x_i + (1 − λ) x_j,    ỹ = λ y_i + (1 − λ) y_j,    λ ~ Beta(α, α), drawn for each image
"""

import torch
from torch import Tensor
from torch.distributions import Beta


def mixup(pixels: Tensor, targets: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """Mix each image in `pixels` (B, C, Y, X) and its class probabilities in `targets` (B, K) with a random partner."""
    alphas = targets.new_full((len(targets), 1), alpha)
    weight = Beta(alphas, alphas, validate_args=False).sample()  # validation would make the host wait for the device
    partner = torch.rand(
        len(pixels), device=pixels.device
    ).argsort()  # torch 2.13 fails to compile indexing by randperm
    pixel_weight = weight.to(pixels.dtype)[:, :, None, None]
    mixed = pixel_weight * pixels + (1 - pixel_weight) * pixels[partner]
    return mixed, weight * targets + (1 - weight) * targets[partner]

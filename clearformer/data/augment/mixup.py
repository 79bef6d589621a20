"""Mixup: in between two pictures, the answer lies in between their answers, too (Zhang et al. 2018).

x̃ = λ x_i + (1 − λ) x_j,    ỹ = λ y_i + (1 − λ) y_j,    λ ~ Beta(α, α)
"""

import torch
from torch import Tensor
from torch.distributions import Beta


def mixup(pixels: Tensor, answers: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """pixels (B, C, Y, X) and answers (B, K), a share for each class -> the same; every picture has a λ of its own."""
    each = answers.new_full((len(answers), 1), alpha)
    share = Beta(each, each, validate_args=False).sample()  # to validate would make the host wait
    partner = torch.rand(
        len(pixels), device=pixels.device
    ).argsort()  # torch 2.13 fails to compile an index by randperm
    whole = share.to(pixels.dtype)[:, :, None, None]
    return whole * pixels + (1 - whole) * pixels[partner], share * answers + (1 - share) * answers[partner]

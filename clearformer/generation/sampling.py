"""Choosing the next token from its logits: pure functions, logits (…, V) -> logits (…, V) or tokens (…).

temperature   softmax(logits / τ)          τ < 1 sharpens, τ > 1 flattens
top-k         only the k likeliest         Fan et al. 2018
top-p         only the nucleus: the fewest likeliest tokens that together hold probability p    Holtzman et al. 2020
"""

from collections.abc import Callable

import torch
from torch import Tensor

NEVER = float("-inf")


def greedy(logits: Tensor) -> Tensor:
    return logits.argmax(-1)


def top_k(logits: Tensor, k: int) -> Tensor:
    kth = logits.topk(min(k, logits.size(-1)), dim=-1).values[..., -1:]
    return logits.masked_fill(logits < kth, NEVER)


def top_p(logits: Tensor, p: float) -> Tensor:
    """The token that crosses p belongs to the nucleus, so at least one is always left."""
    ordered, order = logits.sort(dim=-1, descending=True)
    before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)  # mass held by the likelier tokens
    outside = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, before >= p)
    return logits.masked_fill(outside, NEVER)


def draw(logits: Tensor, generator: torch.Generator | None = None) -> Tensor:
    flat = logits.softmax(-1).view(-1, logits.size(-1))
    return torch.multinomial(flat, 1, generator=generator).view(logits.shape[:-1])


def sampler(
    temperature: float, k: int = 0, p: float = 1.0, generator: torch.Generator | None = None
) -> Callable[[Tensor], Tensor]:
    """The chooser that these settings describe; temperature 0 is greedy."""
    if temperature == 0:
        return greedy

    def choose(logits: Tensor) -> Tensor:
        logits = logits.float() / temperature
        if k:
            logits = top_k(logits, k)
        if p < 1:
            logits = top_p(logits, p)
        return draw(logits, generator)

    return choose

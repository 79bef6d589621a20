"""Pure functions that choose the next token: logits (…, V) -> logits (…, V) or tokens (…).

temperature   softmax(logits / τ)          τ < 1 sharpens, τ > 1 flattens
top-k         the k most probable tokens   Fan et al. 2018
top-p         the nucleus: the smallest set of most probable tokens with total probability ≥ p      Holtzman et al. 2020
repetition    logits of tokens that occurred before: divided by θ if positive, multiplied if not    Keskar et al. 2019

Every text has its own random generator, so that its samples do not depend on the other texts of the batch.
"""

from collections.abc import Iterable, Sequence
from random import Random

import torch
from torch import Tensor

from clearformer.generation.decode import NEVER, Adjust, Chooser, widen

RESOLUTION = 2**24  # float32 represents every multiple of 2^−24 between 0 and 1


def greedy(logits: Tensor, rows: Tensor) -> Tensor:
    if logits.device.type == "cpu" and logits.dtype == torch.float32:
        return torch.from_numpy(logits.detach().numpy().argmax(-1))  # several times faster than torch on the CPU
    return logits.argmax(-1)


def top_k(logits: Tensor, k: int) -> Tensor:
    kth = logits.topk(min(k, logits.size(-1)), dim=-1).values[..., -1:]
    return logits.masked_fill(logits < kth, NEVER)


def top_p(logits: Tensor, p: float) -> Tensor:
    """Keep only the nucleus, which includes the token at which the total reaches p, so that it is never empty."""
    ordered, order = logits.sort(dim=-1, descending=True)
    before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)  # total probability of the more probable tokens
    outside = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, before >= p)
    return logits.masked_fill(outside, NEVER)


def generators(seed: int | None, indices: Iterable[int]) -> list[Random]:
    """Return a random generator for each text, seeded by (seed, index). If the seed is None, torch draws one."""
    seed = int(torch.randint(2**62, ())) if seed is None else seed
    return [Random(f"{seed} {index}") for index in indices]


def draw(logits: Tensor, uniform: Tensor) -> Tensor:
    """Sample by inverse transform: the first token whose cumulative probability exceeds uniform (…) in [0, 1)."""
    probabilities = logits.softmax(-1)
    # A token of probability 0 is never drawn, whatever the rounding of the sums.
    cumulative = probabilities.cumsum(-1).masked_fill(probabilities == 0, 0.0)
    return (cumulative > uniform[..., None] * cumulative.amax(-1, keepdim=True)).int().argmax(-1)


def draw_token(logits: Tensor, uniform: Tensor, temperature: float, k: int, p: float) -> Tensor:
    """Draw a token from each row of logits (…, V), by a random number from uniform (…) in [0, 1)."""
    return draw(shaped(logits, temperature, k, p), uniform)


def shaped(logits: Tensor, temperature: float, k: int = 0, p: float = 1.0) -> Tensor:
    """Return the logits (…, V) that tokens are drawn from: temperature first, then top-k, then top-p."""
    logits = widen(logits) / temperature
    if k:
        logits = top_k(logits, k)
    return top_p(logits, p) if p < 1 else logits


def draws(rng: Random, n: int) -> list[float]:
    """Draw n numbers from [0, 1)."""
    return [rng.randrange(RESOLUTION) / RESOLUTION for _ in range(n)]


def sampler(temperature: float, rngs: Sequence[Random], k: int = 0, p: float = 1.0) -> Chooser:
    """Return a chooser with these settings and one random generator per sentence; greedy for temperature 0."""
    if temperature == 0:
        return greedy

    def choose(logits: Tensor, rows: Tensor) -> Tensor:
        uniform = torch.tensor([draws(rngs[row], logits.size(1)) for row in rows.tolist()], device=logits.device)
        return draw_token(logits, uniform, temperature, k, p)

    return choose


def repetition(theta: float, prompts: Sequence[Sequence[int]]) -> Adjust | None:
    """Return a function that lowers the logits of tokens that occurred before, by θ > 1. Returns None for θ = 1."""
    if theta == 1.0:
        return None

    def adjust(logits: Tensor, rows: Tensor, generated: Tensor) -> Tensor:
        seen = torch.zeros_like(logits, dtype=torch.bool).scatter_(2, generated, True)  # (B, W, V)
        for i, row in enumerate(rows.tolist()):
            seen[i, :, list(prompts[row] if prompts else ())] = True
        return torch.where(seen, torch.where(logits > 0, logits / theta, logits * theta), logits)

    return adjust

"""Choosing the next token from its logits: pure functions, logits (…, V) -> logits (…, V) or tokens (…).

temperature   softmax(logits / τ)          τ < 1 sharpens, τ > 1 flattens
top-k         only the k likeliest         Fan et al. 2018
top-p         only the nucleus: the fewest likeliest tokens that together hold probability p    Holtzman et al. 2020
repetition    logits of tokens seen before: divided by θ if positive, else multiplied            Keskar et al. 2019

Chance comes from dice, one for each text, so that what is drawn for a text does not depend on those beside it.
"""

from collections.abc import Iterable, Sequence
from random import Random

import torch
from torch import Tensor

from clearformer.generation.decode import NEVER, Adjust, Chooser, widen

FACES = 2**24  # as many as float32 tells apart between 0 and 1


def greedy(logits: Tensor, rows: Tensor) -> Tensor:
    if logits.device.type == "cpu" and logits.dtype == torch.float32:
        return torch.from_numpy(logits.detach().numpy().argmax(-1))  # several times as fast as torch's there
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


def dice(seed: int | None, numbers: Iterable[int]) -> list[Random]:
    """A die for each text, a pure function of (seed, number of the text); without a seed torch draws one."""
    seed = int(torch.randint(2**62, ())) if seed is None else seed
    return [Random(f"{seed} {number}") for number in numbers]


def draw(logits: Tensor, luck: Tensor) -> Tensor:
    """The token on whose share luck (…), in [0, 1), falls when the probabilities are laid end to end."""
    shares = logits.softmax(-1)
    ends = shares.cumsum(-1).masked_fill(shares == 0, 0.0)  # rounding never makes room for what cannot be
    return (ends > luck[..., None] * ends.amax(-1, keepdim=True)).int().argmax(-1)  # the first of them


def sampler(temperature: float, dice: Sequence[Random], k: int = 0, p: float = 1.0) -> Chooser:
    """The chooser that these settings describe, with a die for each sentence; temperature 0 is greedy."""
    if temperature == 0:
        return greedy

    def choose(logits: Tensor, rows: Tensor) -> Tensor:
        thrown = [[dice[row].randrange(FACES) / FACES for _ in range(logits.size(1))] for row in rows.tolist()]
        logits = widen(logits) / temperature
        if k:
            logits = top_k(logits, k)
        if p < 1:
            logits = top_p(logits, p)
        return draw(logits, torch.tensor(thrown, device=logits.device))

    return choose


def repetition(theta: float, prompts: Sequence[Sequence[int]]) -> Adjust | None:
    """Makes what a prompt or its continuation has said already less likely, by θ > 1; 1 changes nothing."""
    if theta == 1.0:
        return None

    def adjust(logits: Tensor, rows: Tensor, written: Tensor) -> Tensor:
        seen = torch.zeros_like(logits, dtype=torch.bool).scatter_(2, written, True)  # (B, W, V)
        for i, row in enumerate(rows.tolist()):
            seen[i, :, list(prompts[row])] = True
        return torch.where(seen, torch.where(logits > 0, logits / theta, logits * theta), logits)

    return adjust

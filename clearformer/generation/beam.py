"""Beam search: keep the W likeliest prefixes, extend each by every word, keep the W likeliest again.

    score(y) = log p(y | x) / penalty(|y|)         penalty = |y|^α, or GNMT's ((5 + |y|)/6)^α; |y| counts EOS

Of the 2W best extensions, those among the first W that end with EOS move to a pool of the W best finished sequences;
the W best that do not end live on. 2W, because at most W of them can end. A sentence is done when its pool is full and
the best live branch could no longer displace the worst of it: at its present length (`heuristic`), or at whatever
length suits it best (`never` gives up early). The same rules as Hugging Face `generate`, sentence by sentence.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearformer.generation.decode import NEVER, DecodeConfig, Hypothesis, StepModel, until, widen


def beam_search(
    model: StepModel, state: Any, first: Tensor, eos: int, limits: Tensor, config: DecodeConfig
) -> list[list[Hypothesis]]:
    """For each of B sentences its best `config.beam` sequences, best first.

    first (B,): the token every sequence begins with; limits (B,): tokens allowed, EOS included.
    """
    n, width = first.size(0), config.beam
    results: list[list[Hypothesis]] = [[] for _ in range(n)]
    rows = torch.arange(n, device=first.device)  # which sentence each batch row is
    live = Live.begin(first)
    pool = Pool.empty(n, width, first.device)
    done = torch.zeros(n, dtype=torch.bool, device=first.device)
    while True:
        logits, state = model.step(live.last, state)  # (B, W, V); W is 1 at first
        length = live.tokens.size(2)  # once extended: BOS is not counted, the new token is
        candidates = live.extend(logits, 2 * width, eos if length <= config.min_length else None)
        ended = (candidates.last == eos) | (length >= limits)[:, None]  # (B, 2W)
        pool = pool.merge(candidates, ended & ~done[:, None], width, penalty(length, config), eos)
        live, parents = candidates.survivors(ended, width)
        done = done | pool.is_settled(live, length, limits, config) | (length >= limits)
        n_done = int(done.sum())
        if n_done == done.numel():
            pool.report(rows, done, eos, results)
            return results
        state.reorder(parents)
        if n_done > done.numel() // 4:  # leaving costs a copy of the caches, so several leave together
            pool.report(rows, done, eos, results)
            stay = (~done).nonzero()[:, 0]
            rows, limits, done = rows[stay], limits[stay], done[stay]
            live, pool = live.keep(stay), pool.keep(stay)
            state.keep(stay)


def penalty(length: int | Tensor, config: DecodeConfig) -> Any:
    """What log p is divided by; grows with the length, so that long sequences are not punished for being long."""
    return (length if config.penalty == "power" else (5 + length) / 6) ** config.length_penalty


@dataclass(frozen=True)
class Live:
    """Prefixes under consideration: tokens (B, W, T) with BOS first, logprob (B, W), −∞ where there is none."""

    tokens: Tensor
    logprob: Tensor
    parents: Tensor  # (B, W): the branch each one extends

    @classmethod
    def begin(cls, first: Tensor) -> "Live":
        return cls(first[:, None, None], torch.zeros(first.size(0), 1, device=first.device), first[:, None] * 0)

    @property
    def last(self) -> Tensor:
        return self.tokens[:, :, -1]

    def extend(self, logits: Tensor, n: int, forbidden: int | None) -> "Live":
        """The n likeliest one-token extensions, best first; logits (B, W, V), which are used up."""
        logits = widen(logits)
        banned = None if forbidden is None else logits[:, :, forbidden].clone()
        if forbidden is not None:
            logits[:, :, forbidden] = NEVER
        best, words = largest(logits, min(n, logits.size(2)))  # (B, W, ≤n)
        each = best.size(2)
        total = log_total(logits, best[:, :, :1], banned)  # (B, W): log p = logit − total, wanted for a few of V only
        logprob = (best + (self.logprob - total)[:, :, None]).flatten(1)  # (B, W·each)
        logprob, order = logprob.topk(min(n, logprob.size(1)), dim=1)
        parents, words = order // each, words.flatten(1).gather(1, order)
        tokens = torch.cat([pick(self.tokens, parents), words[:, :, None]], dim=2)
        return Live(tokens, logprob, parents)

    def survivors(self, ended: Tensor, width: int) -> tuple["Live", Tensor]:
        """The `width` best that have not ended, and the branches they come from."""
        logprob = self.logprob.masked_fill(ended, NEVER)
        logprob, order = logprob.topk(min(width, logprob.size(1)), dim=1)
        parents = self.parents.gather(1, order)
        return Live(pick(self.tokens, order), logprob, parents), parents

    def keep(self, rows: Tensor) -> "Live":
        return Live(self.tokens[rows], self.logprob[rows], self.parents[rows])


@dataclass(frozen=True)
class Pool:
    """The best finished sequences so far, best first: tokens (B, W, T), score and logprob (B, W), −∞ where empty."""

    tokens: Tensor
    score: Tensor
    logprob: Tensor

    @classmethod
    def empty(cls, n: int, width: int, device: torch.device) -> "Pool":
        nothing = torch.full((n, width), NEVER, device=device)
        return cls(torch.zeros(n, width, 1, dtype=torch.long, device=device), nothing, nothing)

    def merge(self, candidates: Live, ended: Tensor, width: int, norm: float, eos: int) -> "Pool":
        """Take in those of the first `width` candidates that ended, and keep the best `width` of all."""
        new = candidates.logprob[:, :width].masked_fill(~ended[:, :width], NEVER)
        # Filled up with EOS: a sequence cut at its limit has none of its own to say where it stopped.
        old_tokens = torch.nn.functional.pad(self.tokens, (0, 1), value=eos)
        tokens = torch.cat([old_tokens, candidates.tokens[:, :width]], dim=1)
        logprob = torch.cat([self.logprob.to(new.dtype), new], dim=1)
        score, order = torch.cat([self.score.to(new.dtype), new / norm], dim=1).topk(width, dim=1)
        return Pool(pick(tokens, order), score, logprob.gather(1, order))

    def is_settled(self, live: Live, length: int, limits: Tensor, config: DecodeConfig) -> Tensor:
        """(B,) Can no live branch displace the worst finished sequence any more?"""
        # A single branch is greedy search, which ends at its first EOS and asks no further.
        is_patient = config.stop == "never" and config.length_penalty > 0 and config.beam > 1
        reach = limits if is_patient else length
        return live.logprob[:, 0] / penalty(reach, config) <= self.score[:, -1]

    def report(self, rows: Tensor, done: Tensor, eos: int, results: list[list[Hypothesis]]) -> None:
        for row in done.nonzero()[:, 0].tolist():
            found = zip(self.tokens[row].tolist(), self.score[row].tolist(), self.logprob[row].tolist())
            results[rows[row]] = [
                Hypothesis(until(tokens[1:], eos), score, logprob) for tokens, score, logprob in found if score > NEVER
            ]

    def keep(self, rows: Tensor) -> "Pool":
        return Pool(self.tokens[rows], self.score[rows], self.logprob[rows])


def pick(tokens: Tensor, order: Tensor) -> Tensor:
    """Rows of tokens (B, n, T) in the order (B, m) -> (B, m, T)."""
    return tokens.gather(1, order[:, :, None].expand(-1, -1, tokens.size(2)))


def largest(x: Tensor, n: int, block: int = 128) -> tuple[Tensor, Tensor]:
    """x.topk(n) along the last axis, by way of blocks: the n largest lie in the n blocks with the largest maxima.

    Looking at maxima first is several times faster than topk's own pass over a vocabulary, and just as exact.
    """
    n_blocks = x.size(-1) // block
    if n_blocks < 2 * n:
        return x.topk(n, dim=-1)
    head, tail = x[..., : n_blocks * block].unflatten(-1, (n_blocks, block)), x[..., n_blocks * block :]
    chosen = head.amax(-1).topk(n, dim=-1).indices[..., None]  # (…, n, 1)
    inside = head.gather(-2, chosen.expand(*chosen.shape[:-1], block)).flatten(-2)  # (…, n · block)
    places = (chosen * block + torch.arange(block, device=x.device)).flatten(-2)
    after = torch.arange(n_blocks * block, x.size(-1), device=x.device).expand(*tail.shape)
    values, order = torch.cat([inside, tail], dim=-1).topk(n, dim=-1)
    return values, torch.cat([places, after], dim=-1).gather(-1, order)


def log_total(logits: Tensor, peak: Tensor, banned: Tensor | None) -> Tensor:
    """log Σ exp(logits) over the last axis, in place, given a value near the largest and one that was blotted out."""
    total = logits.sub_(peak).exp_().sum(-1)
    if banned is not None:
        total = total + (banned - peak[..., 0]).exp()
    return total.log() + peak[..., 0]

"""Beam search: extend each of the W best hypotheses by every token, and keep the W best extensions.

    score(y) = log p(y | x) / penalty(|y|)         penalty = |y|^α, or GNMT's ((5 + |y|)/6)^α; |y| counts EOS

Each step takes the 2W best extensions. If any of the first W end with EOS, they compete for a place in the pool of the
W best finished hypotheses. The W best extensions without EOS stay live; 2W are enough, because at most W end with EOS.
A sentence is done when its pool is full and its best live hypothesis can no longer displace the worst hypothesis in the
pool: at its present length (stop = "heuristic"), or at the most favourable length (stop = "never", which never stops
too early). The rules are the same as in Hugging Face `generate`, applied to each sentence separately.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearformer.generation.decode import NEVER, DecodeConfig, Hypothesis, StepModel, until, widen


def beam_search(
    model: StepModel,
    state: Any,
    first: Tensor,
    eos: int,
    limits: Tensor,
    config: DecodeConfig,
    watch: "Watch | None" = None,
) -> list[list[Hypothesis]]:
    """Return the `config.beam` best hypotheses for each of B sentences, best first.

    first (B,): the first input token of each sentence; limits (B,): the maximum output lengths, EOS included. `watch`
    is called after each step with the candidates, which of them have ended, and the live and finished hypotheses.
    """
    n, width = first.size(0), config.beam
    results: list[list[Hypothesis]] = [[] for _ in range(n)]
    rows = torch.arange(n, device=first.device)  # the sentence of each batch row
    live = Live.begin(first)
    pool = Pool.empty(n, width, first.device)
    done = torch.zeros(n, dtype=torch.bool, device=first.device)
    while True:
        logits, state = model.step(live.last, state)  # (B, W, V); W is 1 at first
        length = live.tokens.size(2)  # after this step: with the new token, without BOS
        candidates = live.extend(logits, 2 * width, eos if length <= config.min_length else None)
        ended = (candidates.last == eos) | (length >= limits)[:, None]  # (B, 2W)
        pool = pool.merge(candidates, ended & ~done[:, None], width, penalty(length, config), eos)
        live, parents = candidates.survivors(ended, width)
        if watch is not None:
            watch(candidates, ended, live, pool)
        done = done | pool.is_settled(live, length, limits, config) | (length >= limits)
        n_done = int(done.sum())
        if n_done == done.numel():
            pool.report(rows, done, eos, results)
            return results
        state.reorder(parents)
        if n_done > done.numel() // 4:  # removing rows copies the caches, so remove several at once
            pool.report(rows, done, eos, results)
            stay = (~done).nonzero()[:, 0]
            rows, limits, done = rows[stay], limits[stay], done[stay]
            live, pool = live.keep(stay), pool.keep(stay)
            state.keep(stay)


def penalty(length: int | Tensor, config: DecodeConfig) -> Any:
    """Return the divisor of log p. It grows with the length, because every additional token lowers log p."""
    return (length if config.penalty == "power" else (5 + length) / 6) ** config.length_penalty


@dataclass(frozen=True)
class Live:
    """Unfinished hypotheses: tokens (B, W, T) with BOS first, logprob (B, W), −∞ where there is none."""

    tokens: Tensor
    logprob: Tensor
    parents: Tensor  # (B, W): index of the hypothesis that each one extends

    @classmethod
    def begin(cls, first: Tensor) -> "Live":
        return cls(first[:, None, None], torch.zeros(first.size(0), 1, device=first.device), first[:, None] * 0)

    @property
    def last(self) -> Tensor:
        return self.tokens[:, :, -1]

    def extend(self, logits: Tensor, n: int, forbidden: int | None) -> "Live":
        """Return the n most probable one-token extensions, best first. Overwrites logits (B, W, V)."""
        logits = widen(logits)
        banned = None if forbidden is None else logits[:, :, forbidden].clone()
        if forbidden is not None:
            logits[:, :, forbidden] = NEVER
        best, next_tokens = largest(logits, min(n, logits.size(2)))  # (B, W, ≤n)
        each = best.size(2)
        total = log_total(logits, best[:, :, :1], banned)  # (B, W): log p = logit − total, only for the best few of V
        logprob = (best + (self.logprob - total)[:, :, None]).flatten(1)  # (B, W·each)
        logprob, order = logprob.topk(min(n, logprob.size(1)), dim=1)
        parents, next_tokens = order // each, next_tokens.flatten(1).gather(1, order)
        tokens = torch.cat([pick(self.tokens, parents), next_tokens[:, :, None]], dim=2)
        return Live(tokens, logprob, parents)

    def survivors(self, ended: Tensor, width: int) -> tuple["Live", Tensor]:
        """Return the `width` best hypotheses that have not ended, and the indices of their parents."""
        logprob = self.logprob.masked_fill(ended, NEVER)
        logprob, order = logprob.topk(min(width, logprob.size(1)), dim=1)
        parents = self.parents.gather(1, order)
        return Live(pick(self.tokens, order), logprob, parents), parents

    def keep(self, rows: Tensor) -> "Live":
        return Live(self.tokens[rows], self.logprob[rows], self.parents[rows])


@dataclass(frozen=True)
class Pool:
    """The best finished hypotheses, best first: tokens (B, W, T), score and logprob (B, W), −∞ where empty."""

    tokens: Tensor
    score: Tensor
    logprob: Tensor

    @classmethod
    def empty(cls, n: int, width: int, device: torch.device) -> "Pool":
        nothing = torch.full((n, width), NEVER, device=device)
        return cls(torch.zeros(n, width, 1, dtype=torch.long, device=device), nothing, nothing)

    def merge(self, candidates: Live, ended: Tensor, width: int, norm: float, eos: int) -> "Pool":
        """Add the finished hypotheses among the first `width` candidates, and keep the best `width` of all."""
        new = candidates.logprob[:, :width].masked_fill(~ended[:, :width], NEVER)
        # Pad with EOS, which marks the end of sequences that were cut at their limit.
        old_tokens = torch.nn.functional.pad(self.tokens, (0, 1), value=eos)
        tokens = torch.cat([old_tokens, candidates.tokens[:, :width]], dim=1)
        logprob = torch.cat([self.logprob.to(new.dtype), new], dim=1)
        score, order = torch.cat([self.score.to(new.dtype), new / norm], dim=1).topk(width, dim=1)
        return Pool(pick(tokens, order), score, logprob.gather(1, order))

    def is_settled(self, live: Live, length: int, limits: Tensor, config: DecodeConfig) -> Tensor:
        """Whether, for each sentence, no live hypothesis can still displace the worst finished one: (B,)."""
        # A beam of 1 is greedy search, which ends at its first EOS.
        is_patient = config.stop == "never" and config.length_penalty > 0 and config.beam > 1
        reach = limits if is_patient else length
        return live.logprob[:, 0] / penalty(reach, config) <= self.score[:, -1]

    def report(self, rows: Tensor, done: Tensor, eos: int, results: list[list[Hypothesis]]) -> None:
        for row in done.nonzero()[:, 0].tolist():
            finished = zip(self.tokens[row].tolist(), self.score[row].tolist(), self.logprob[row].tolist())
            results[rows[row]] = [
                Hypothesis(until(tokens[1:], eos), score, logprob)
                for tokens, score, logprob in finished
                if score > NEVER
            ]

    def keep(self, rows: Tensor) -> "Pool":
        return Pool(self.tokens[rows], self.score[rows], self.logprob[rows])


Watch = Callable[[Live, Tensor, Live, Pool], None]


def pick(tokens: Tensor, order: Tensor) -> Tensor:
    """Select hypotheses by index: tokens (B, n, T), order (B, m) -> (B, m, T)."""
    return tokens.gather(1, order[:, :, None].expand(-1, -1, tokens.size(2)))


def largest(x: Tensor, n: int, block: int = 128) -> tuple[Tensor, Tensor]:
    """Compute x.topk(n) over the last axis in two stages, by blocks.

    The n largest values are in the n blocks with the largest maxima. This is exact, and several times faster than topk
    over the whole vocabulary.
    """
    n_blocks = x.size(-1) // block
    if n_blocks < 2 * n:
        return x.topk(n, dim=-1)
    head, tail = x[..., : n_blocks * block].unflatten(-1, (n_blocks, block)), x[..., n_blocks * block :]
    chosen = head.amax(-1).topk(n, dim=-1).indices  # (…, n)
    inside = head.gather(-2, chosen[..., None].expand(*chosen.shape, block)).flatten(-2)  # (…, n · block)
    values, order = torch.cat([inside, tail], dim=-1).topk(n, dim=-1)
    of = chosen.gather(-1, (order // block).clamp(max=n - 1))  # the block of each value, unless it is in the tail
    places = torch.where(order < n * block, of * block + order % block, order + (n_blocks - n) * block)
    return values, places


def log_total(logits: Tensor, peak: Tensor, banned: Tensor | None) -> Tensor:
    """Compute log Σ exp(logits) over the last axis, overwriting the logits.

    `peak` is the largest allowed logit, subtracted for stability. `banned` is a logit that was set to −∞ but
    still counts in the sum.
    """
    total = logits.sub_(peak).exp_().sum(-1)
    if banned is not None:
        total = total + (banned - peak[..., 0]).exp()
    return total.log() + peak[..., 0]

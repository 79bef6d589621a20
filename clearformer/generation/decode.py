"""The step protocol: how any model that writes one token at a time is driven.

    state = model.start(source, source_mask)            read the source, once
    logits, state = model.step(tokens, state)           tokens (B, W): one on each of W branches of B sentences
    state.reorder(parents)                              branch w goes on from branch parents[b, w]
    state.keep(rows)                                    the other sentences leave the batch

Greedy search, sampling and beam search see nothing else of a model. A Transformer's state is its caches, a recurrent
network's its hidden vectors.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from pydantic import Field
from torch import Tensor

from clearformer.config import Config

NEVER = float("-inf")

Chooser = Callable[[Tensor, Tensor], Tensor]
"""choose(logits (B, W, V), rows (B,)) -> tokens (B, W); rows says which sentences of those that began are left."""

Adjust = Callable[[Tensor, Tensor, Tensor], Tensor]
"""adjust(logits (B, W, V), rows (B,), written (B, W, T)) -> logits, before one is chosen."""


class State(Protocol):
    def reorder(self, parents: Tensor) -> None: ...
    def keep(self, rows: Tensor) -> None: ...


class StepModel(Protocol):
    def start(self, source: Tensor, source_mask: Tensor | None) -> Any: ...
    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]: ...


@dataclass(frozen=True)
class Hypothesis:
    """One decoded sequence, without BOS and EOS. `score` is what the search ranked by; `logprob` is log p(tokens).

    A sample also knows the log-probability of each of its tokens.
    """

    tokens: list[int]
    score: float
    logprob: float
    logprobs: list[float] = field(default_factory=list)


class DecodeConfig(Config):
    """[decode]: how translations, or continuations, are searched for."""

    beam: int = Field(5, ge=1, description="branches kept; 1 is greedy search")
    length_penalty: float = Field(1.0, description="α: a finished sequence is ranked by log p / len^α")
    penalty: Literal["power", "gnmt"] = Field("power", description="len^α, or GNMT's ((5 + len)/6)^α")
    stop: Literal["heuristic", "never"] = Field(
        "heuristic", description="give up when no branch of the present length, or of any length, could still win"
    )
    max_ratio: float = Field(2.0, gt=0, description="longest output: this many times the source, plus max_extra tokens")
    max_extra: int = Field(16, ge=1, description="tokens")
    min_length: int = Field(0, ge=0, description="tokens before EOS is allowed")
    max_new: int = Field(256, ge=1, description="longest continuation of a prompt, in tokens")
    temperature: float = Field(0.0, ge=0, description="0 searches; above 0 samples instead")
    top_k: int = Field(0, ge=0, description="sample from the k likeliest; 0 is all")
    top_p: float = Field(1.0, gt=0, le=1, description="sample from the likeliest that hold this much probability")
    repetition_penalty: float = Field(1.0, gt=0, description="above 1: words of the prompt or written are less likely")

    def limits(self, source_lengths: Tensor) -> Tensor:
        """The longest output allowed for each sentence, EOS included: depends on the sentence alone, not its batch."""
        return (source_lengths * self.max_ratio).long() + self.max_extra


def sample(*arguments: Any, **settings: Any) -> list[list[Hypothesis]]:
    """Write to the end at once; the arguments are those of `write`."""
    writing = write(*arguments, **settings)
    while True:
        try:
            next(writing)
        except StopIteration as end:
            found: list[list[Hypothesis]] = end.value
            return found


def write(
    model: StepModel,
    state: Any,
    first: Tensor,
    eos: int,
    limits: Tensor,
    choose: Chooser,
    width: int = 1,
    min_length: int = 0,
    adjust: Adjust | None = None,
) -> Generator[tuple[Tensor, Tensor], Tensor | None, list[list[Hypothesis]]]:
    """Write until EOS on `width` independent branches a sentence; of each sentence the likeliest comes first.

    first (B,): the token every branch begins with; limits (B,): tokens allowed, EOS included. Before `min_length`
    tokens EOS cannot be chosen, but log p stays the model's own. Finished sentences leave the batch, so that the last
    long one does not pay for the others.

    Each step yields which sentences are left, rows (B,), and what was written on their branches, (B, W), EOS on those
    that have ended. A mask (B, W) sent back ends branches of which the reader has seen enough.
    """
    n, device = first.size(0), first.device
    results: list[list[Hypothesis]] = [[] for _ in range(n)]
    rows = torch.arange(n, device=device)  # which sentence each batch row is
    tokens = first[:, None].expand(n, width)
    written = torch.empty(n, width, 0, dtype=torch.long, device=device)
    gains = torch.empty(n, width, 0, device=device)
    ended = torch.zeros(n, width, dtype=torch.bool, device=device)
    while rows.numel():
        logits, state = model.step(tokens, state)  # (B, W, V)
        logprobs = widen(logits).log_softmax(-1)
        if adjust is not None:
            logits = adjust(logits, rows, written)
        if written.size(2) < min_length:
            logits = logits.index_fill(2, torch.tensor(eos, device=device), NEVER)
        tokens = choose(logits, rows).masked_fill(ended, eos)  # (B, W)
        gained = logprobs.gather(2, tokens[:, :, None]).masked_fill(ended[:, :, None], 0.0)
        gains = torch.cat([gains.to(gained.dtype), gained], dim=2)
        written = torch.cat([written, tokens[:, :, None]], dim=2)  # (B, W, T)
        ended = ended | (tokens == eos)
        enough = yield rows, tokens
        if enough is not None:
            ended = ended | enough
        done = ended.all(1) | (written.size(2) >= limits)
        if done.any():
            for row in done.nonzero()[:, 0].tolist():
                found = [report(*branch, eos) for branch in zip(written[row].tolist(), gains[row].tolist())]
                results[rows[row]] = sorted(found, key=lambda hypothesis: -hypothesis.logprob)
            stay = (~done).nonzero()[:, 0]
            rows, tokens, written, gains, ended, limits = (
                x[stay] for x in (rows, tokens, written, gains, ended, limits)
            )
            state.keep(stay)
    return results


def report(tokens: list[int], gains: list[float], eos: int) -> Hypothesis:
    """A finished branch. `gains` are zero after its end."""
    kept, total = until(tokens, eos), sum(gains)
    return Hypothesis(kept, total, total, gains[: len(kept)])


def widen(logits: Tensor) -> Tensor:
    """At least float32, where log-probabilities of a long sequence add up without being rounded away."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def until(tokens: list[int], eos: int) -> list[int]:
    """The tokens before the first EOS."""
    return tokens[: tokens.index(eos)] if eos in tokens else tokens

"""The step protocol: the interface of every model that generates token by token.

    state = model.start(source, source_mask)            encode the source, once
    logits, state = model.step(tokens, state)           tokens (B, W): the last token of W hypotheses for B sentences
    state.reorder(parents)                              hypothesis w continues hypothesis parents[b, w]
    state.keep(rows)                                    remove the other sentences from the batch

Greedy search, sampling and beam search need nothing else from a model. The state of a Transformer is its key–value
caches, the state of a recurrent network its hidden vectors.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from clearformer.config import Config

NEVER = float("-inf")

Chooser = Callable[[Tensor, Tensor], Tensor]
"""choose(logits (B, W, V), rows (B,)) -> tokens (B, W); rows holds the original index of each remaining sentence."""

Adjust = Callable[[Tensor, Tensor, Tensor], Tensor]
"""adjust(logits (B, W, V), rows (B,), generated (B, W, T)) -> logits, applied before a token is chosen."""


class State(Protocol):
    def reorder(self, parents: Tensor) -> None: ...
    def keep(self, rows: Tensor) -> None: ...


class StepModel(Protocol):
    def start(self, source: Tensor, source_mask: Tensor | None) -> Any: ...
    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]: ...


@dataclass(frozen=True)
class Hypothesis:
    """One decoded sequence, without BOS and EOS. `logprob` is log p(tokens); hypotheses are ranked by `score`.

    `logprobs` has the log-probability of each token, for greedy search and sampling only.
    """

    tokens: list[int]
    score: float
    logprob: float
    logprobs: list[float] = field(default_factory=list)


class DecodeConfig(Config):
    """The [decode] table of a recipe: settings of search and sampling."""

    beam: int = Field(5, ge=1, description="number of hypotheses that beam search keeps; 1 means greedy search")
    length_penalty: float = Field(
        1.0, description="length penalty α: finished hypotheses are ranked by log p / length^α"
    )
    penalty: Literal["power", "gnmt"] = Field(
        "power", description="form of the length penalty: power, length^α, or gnmt, ((5 + length) / 6)^α"
    )
    stop: Literal["heuristic", "never"] = Field(
        "heuristic",
        description="when to end beam search: heuristic, once no hypothesis of the present length can improve the "
        "result; never, once no hypothesis of any length can",
    )
    max_ratio: float = Field(
        2.0, gt=0, description="maximum output length as a multiple of the source length, plus max_extra tokens"
    )
    max_extra: int = Field(16, ge=1, description="tokens added to the maximum output length; see max_ratio")
    min_length: int = Field(0, ge=0, description="minimum output length, in tokens; EOS cannot be chosen earlier")
    max_new: int = Field(256, ge=1, description="maximum length of a continuation, in tokens")
    temperature: float = Field(0.0, ge=0, description="sampling temperature; 0 selects greedy or beam search instead")
    top_k: int = Field(0, ge=0, description="sample from the k most probable tokens; 0 means all tokens")
    top_p: float = Field(
        1.0, gt=0, le=1, description="sample from the most probable tokens with this total probability"
    )
    repetition_penalty: float = Field(
        1.0, gt=0, description="divisor of the logits of tokens that have occurred; above 1, it discourages repetition"
    )

    def limit(self, n_source: int) -> int:
        """Return the maximum output length for a source of n tokens, EOS included in both.

        The product is rounded to float32, so that 0.29 · 100 is 29, not 28.99….
        """
        return int(np.float32(n_source) * np.float32(self.max_ratio)) + self.max_extra


def sample(*arguments: Any, **settings: Any) -> list[list[Hypothesis]]:
    """Run `sample_steps` to the end with the same arguments, and return its hypotheses."""
    steps = sample_steps(*arguments, **settings)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            hypotheses: list[list[Hypothesis]] = end.value
            return hypotheses


def sample_steps(
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
    """Generate `width` independent sequences per sentence until EOS, and return them, the most probable first.

    first (B,): the first input token of each sentence; limits (B,): the maximum output lengths, EOS included. EOS
    cannot be chosen before `min_length` tokens; log p is computed without this restriction. Finished sentences leave
    the batch, so that no time is spent on them while longer sentences continue.

    Each step yields rows (B,), the original indices of the remaining sentences, and their new tokens (B, W), which are
    EOS for sequences that have ended. The caller may send back a mask (B, W) of sequences to end.
    """
    n, device = first.size(0), first.device
    results: list[list[Hypothesis]] = [[] for _ in range(n)]
    rows = torch.arange(n, device=device)  # the sentence of each batch row
    tokens = first[:, None].expand(n, width)
    generated = torch.empty(n, width, 0, dtype=torch.long, device=device)
    token_logprobs = torch.empty(n, width, 0, device=device)
    ended = torch.zeros(n, width, dtype=torch.bool, device=device)
    while rows.numel():
        logits, state = model.step(tokens, state)  # (B, W, V)
        logprobs = widen(logits).log_softmax(-1)
        if adjust is not None:
            logits = adjust(logits, rows, generated)
        if generated.size(2) < min_length:
            logits = logits.index_fill(2, torch.tensor(eos, device=device), NEVER)
        tokens = choose(logits, rows).masked_fill(ended, eos)  # (B, W)
        chosen = logprobs.gather(2, tokens[:, :, None]).masked_fill(ended[:, :, None], 0.0)
        token_logprobs = torch.cat([token_logprobs.to(chosen.dtype), chosen], dim=2)
        generated = torch.cat([generated, tokens[:, :, None]], dim=2)  # (B, W, T)
        ended = ended | (tokens == eos)
        stopped = yield rows, tokens
        if stopped is not None:
            ended = ended | stopped
        done = ended.all(1) | (generated.size(2) >= limits)
        if done.any():
            for row in done.nonzero()[:, 0].tolist():
                sequences = zip(generated[row].tolist(), token_logprobs[row].tolist())
                hypotheses = [finish(*sequence, eos) for sequence in sequences]
                results[rows[row]] = sorted(hypotheses, key=lambda hypothesis: -hypothesis.logprob)
            stay = (~done).nonzero()[:, 0]
            rows, tokens, generated, token_logprobs, ended, limits = (
                x[stay] for x in (rows, tokens, generated, token_logprobs, ended, limits)
            )
            state.keep(stay)
    return results


def finish(tokens: list[int], logprobs: list[float], eos: int, norm: float = 1.0) -> Hypothesis:
    """Make the hypothesis of a finished sequence, with score log p / norm. `logprobs` are zero after its end."""
    before_eos, total = until(tokens, eos), sum(logprobs)
    return Hypothesis(before_eos, total / norm, total, logprobs[: len(before_eos)])


def widen(logits: Tensor) -> Tensor:
    """Convert logits to float32 or wider, so that the sum of log-probabilities of a long sequence stays accurate."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def until(tokens: list[int], eos: int) -> list[int]:
    """Return the tokens before the first EOS."""
    return tokens[: tokens.index(eos)] if eos in tokens else tokens

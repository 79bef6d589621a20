"""How tokens are chosen for sequences with different settings that start and end at different times.

    OpenSampling    W independent sequences per text: the most probable tokens, or samples
    OpenBeam        the w ≤ W best hypotheses per text, and the pool of the w best finished ones

The rules are the same as in decode.py and beam.py. There, all texts of a batch have the same settings and the same
length; here, both are columns with an entry per row. `arrange` lets texts join and leave.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import torch
from torch import Tensor

from clearformer.generation.beam import largest, log_total, penalty
from clearformer.generation.decode import NEVER, DecodeConfig, Hypothesis, finish, until, widen
from clearformer.generation.sampling import draw_token, draws, greedy
from clearformer.layers.open_cache import Live, Order


@dataclass(frozen=True)
class Sequences:
    """What to decode for one text: the arguments of `Decoder.decode` for a single row.

    `source` is read by `model.start`; `first` is the first input of the decoder, and `limit` the maximum length of the
    output, EOS included. `width` is the number of hypotheses of beam search, or of samples. `seed` of the samples is a
    text, as in `generators`; None means the most probable tokens. `seen` are the tokens of the prompt, for the
    repetition penalty, or None if there is no such penalty, as in beam search. `adapter` is the number of its LoRA
    adapter, 0 for none.
    """

    source: Sequence[int]
    first: int
    eos: int
    limit: int
    config: DecodeConfig
    width: int
    seed: str | None = None
    seen: Sequence[int] | None = None
    adapter: int = 0

    @property
    def is_beam(self) -> bool:
        return self.config.temperature == 0 and self.width > 1


class Progress(NamedTuple):
    """The outcome of a step for one text: the new token of each sequence, and log p of each at temperature 1.

    The tokens of sequences that ended earlier are None. A beam search has no tokens before its end.
    """

    tokens: Sequence[int | None]
    logprobs: Sequence[float]
    is_done: bool


SEARCHING, SEARCHED = Progress((), (), False), Progress((), (), True)  # of a beam search


def n_generated(steps: Iterable[Progress]) -> int:
    """Return the number of new tokens in some steps of a text."""
    return sum(token is not None for step in steps for token in step.tokens)


class OpenPolicy:
    """The columns of every policy: last (B, W), the next input; width, length, limit and min_length (B,)."""

    def __init__(self, width: int, eos: int, device: torch.device) -> None:
        self.width, self.eos, self.device = width, eos, device
        self.rows: list[Any] = []
        self.columns: dict[str, Tensor] = {}
        self.live: Live | None = None  # None if every text has W hypotheses

    def arrange(self, order: Order, new: Sequence[Sequences]) -> None:
        """Let texts leave, move and join; `order.chosen` indexes `new`."""
        begun = self.begin(new) if new else {}
        for name in begun.keys() | self.columns.keys():
            joined = begun.get(name)
            old = self.columns[name] if name in self.columns else begun[name][:0]
            self.columns[name] = order.apply(*match(old, joined))
        rows = [*self.rows, *(self.row(new[i]) for i in order.chosen.tolist())]
        self.rows = [rows[i] for i in order.order.tolist()]
        is_full = bool((self.columns["width"] == self.width).all())
        self.live = None if is_full else Live(self.columns["width"], self.width)

    @property
    def n_live(self) -> int:
        """The number L of hypotheses of all texts."""
        return self.last.numel() if self.live is None else len(self.live.index)

    def pick(self, x: Tensor) -> Tensor:
        """Return the hypotheses that exist: (BW, …) -> (L, …)."""
        return x if self.live is None else self.live.pick(x)

    def spread(self, x: Tensor) -> Tensor:
        """Return all hypotheses: (L, …) -> (B, W, …)."""
        return (x if self.live is None else self.live.spread(x)).unflatten(0, self.last.shape)

    def by_hypothesis(self, name: str) -> Tensor:
        """Return a column (B,) for each hypothesis, (L,)."""
        return self.columns[name].repeat_interleave(self.columns["width"], output_size=self.n_live)

    def begin(self, new: Sequence[Sequences]) -> dict[str, Tensor]:
        """Return the columns of new texts."""
        return {
            "last": self.column([[one.first] * self.width for one in new]),
            "width": self.column([one.width for one in new]),
            "length": self.column([0 for _ in new]),
            "limit": self.column([one.limit for one in new]),
            "min_length": self.column([one.config.min_length for one in new]),
            "adapter": self.column([one.adapter for one in new]),
        }

    def column(self, values: Sequence[Any], dtype: torch.dtype | None = None) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=self.device)

    def row(self, one: Sequences) -> Any:
        """Return what the host remembers of a new text."""
        raise NotImplementedError

    @property
    def last(self) -> Tensor:
        return self.columns["last"]

    def is_early(self) -> Tensor | None:
        """Whether EOS cannot be chosen yet, (L,); None if it can be chosen everywhere."""
        early = self.columns["length"] < self.columns["min_length"]
        return early.repeat_interleave(self.columns["width"]) if bool(early.any()) else None

    def choose(self, logits: Tensor) -> tuple[Tensor | None, list[Progress]]:
        """Choose the next tokens from logits (L, V), which may be overwritten; returns the parents (B, W) of a beam."""
        raise NotImplementedError

    def stop(self, row: int, sequence: int) -> bool:
        """End a sequence, as if EOS had followed; returns whether all sequences of the text have ended."""
        raise NotImplementedError

    def results(self, row: int) -> list[Hypothesis]:
        """Return the hypotheses of a text that is done, best first."""
        raise NotImplementedError


def match(old: Tensor, new: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Give both tensors (B, W, T) the same T: zeros follow."""
    if new is None or old.dim() < 3:
        return old, new
    size = max(old.size(2), new.size(2))
    pad = torch.nn.functional.pad
    return pad(old, (0, size - old.size(2))), pad(new, (0, size - new.size(2)))


class Samples:
    """What the host remembers of W sequences: their tokens so far, and their random generator."""

    def __init__(self, one: Sequences) -> None:
        self.tokens: list[list[int]] = [[] for _ in range(one.width)]
        self.logprobs: list[list[float]] = [[] for _ in range(one.width)]
        self.ended = [False] * one.width
        self.rng = None if one.seed is None else Random(one.seed)
        self.one, config = one, one.config
        self.repetition = 1.0 if one.seen is None else config.repetition_penalty
        self.draw = (config.temperature, config.top_k, config.top_p)


class OpenSampling(OpenPolicy):
    rows: list[Samples]

    def row(self, one: Sequences) -> Samples:
        return Samples(one)

    def choose(self, logits: Tensor) -> tuple[None, list[Progress]]:
        logits = widen(logits).unflatten(0, self.last.shape)
        totals = logits.logsumexp(-1)  # (B, W)
        allowed = self.allowed(logits)
        tokens = self.next_tokens(allowed)  # (B, W)
        logprobs = (logits.gather(2, tokens[:, :, None])[:, :, 0] - totals).tolist()
        progress = [self.settle(row, *new) for row, new in zip(self.rows, zip(tokens.tolist(), logprobs))]
        self.columns["last"] = tokens
        self.columns["length"] += 1
        return None, progress

    def allowed(self, logits: Tensor) -> Tensor:
        """Return the logits with the repetition penalty of each text, and without EOS where it is too early."""
        penalised = [i for i, row in enumerate(self.rows) if row.repetition != 1.0]
        early = self.is_early()
        if penalised or early is not None:
            logits = logits.clone()
        for i in penalised:
            row = self.rows[i]
            for w, tokens in enumerate(row.tokens):
                ids = torch.tensor([*(row.one.seen or ()), *tokens], dtype=torch.long, device=logits.device)
                seen = logits[i, w, ids]
                logits[i, w, ids] = torch.where(seen > 0, seen / row.repetition, seen * row.repetition)
        if early is not None:
            logits[:, :, self.eos] = logits[:, :, self.eos].masked_fill(early.view(self.last.shape), NEVER)
        return logits

    def next_tokens(self, logits: Tensor) -> Tensor:
        """Choose the most probable tokens or, in rows with a temperature, draw: (B, W, V) -> (B, W)."""
        uniform: dict[tuple[float, int, float], dict[int, list[float]]] = {}  # by settings and row
        for i, row in enumerate(self.rows):
            if row.rng is not None:
                uniform.setdefault(row.draw, {})[i] = draws(row.rng, self.width)
        tokens = greedy(logits, logits)
        for settings, drawn in uniform.items():
            at = self.column(list(drawn))
            tokens[at] = draw_token(logits[at], self.column(list(drawn.values())), *settings)
        return tokens

    def settle(self, row: Samples, tokens: list[int], logprobs: list[float]) -> Progress:
        new: list[int | None] = [None if ended else token for token, ended in zip(tokens, row.ended)]
        for w, token in enumerate(new):
            if token is not None:
                row.tokens[w].append(token)
                row.logprobs[w].append(logprobs[w])
                row.ended[w] = token == self.eos
        n = max(map(len, row.tokens))
        return Progress(new, logprobs, all(row.ended) or n >= row.one.limit)

    def stop(self, row: int, sequence: int) -> bool:
        self.rows[row].ended[sequence] = True
        return all(self.rows[row].ended)

    def results(self, row: int) -> list[Hypothesis]:
        """Return the sequences of a text, the most probable first; greedy ones have a length penalty."""
        samples = self.rows[row]
        n = max(map(len, samples.tokens))
        norm = 1.0 if samples.rng is not None else float(penalty(max(n, 1), samples.one.config))
        outcomes = [finish(t, v, self.eos, norm) for t, v in zip(samples.tokens, samples.logprobs)]
        return sorted(outcomes, key=lambda outcome: -outcome.logprob)


class OpenBeam(OpenPolicy):
    """Beam search. Before the first step, one hypothesis is possible and the others have log p = −∞.

    The tree of all hypotheses is kept as it was drawn: tokens and parents (B, W, T) of every step. Hypotheses are read
    from it only at the end, from their last token back to the first.
    """

    rows: list[Sequences]

    def row(self, one: Sequences) -> Sequences:
        return one

    def begin(self, new: Sequence[Sequences]) -> dict[str, Tensor]:
        n, W, configs = len(new), self.width, [one.config for one in new]
        nothing = torch.full((n, W), NEVER, device=self.device)
        logprob = nothing.clone()
        logprob[:, 0] = 0.0
        places = torch.zeros(n, W, 0, dtype=torch.long, device=self.device)
        none = torch.zeros(n, W, dtype=torch.long, device=self.device)
        exact = torch.float64  # so that scores are rounded once, as in a search where all lengths are equal
        return super().begin(new) | {
            "logprob": logprob,
            "tokens": places,
            "parents": places,
            "score": nothing,
            "pool_logprob": nothing,
            "pool_token": none,
            "pool_parent": none,
            "pool_length": none,
            "alpha": self.column([config.length_penalty for config in configs], exact),
            "is_gnmt": self.column([config.penalty == "gnmt" for config in configs]),
            "is_patient": self.column([config.stop == "never" and config.length_penalty > 0 for config in configs]),
        }

    def norm(self, length: Tensor) -> Tensor:
        """Return the divisors of log p for hypotheses of these lengths, (B,)."""
        length = length.to(torch.float64)
        return torch.where(self.columns["is_gnmt"], (5 + length) / 6, length) ** self.columns["alpha"]

    def choose(self, logits: Tensor) -> tuple[Tensor, list[Progress]]:
        c, W = self.columns, self.width
        length = c["length"] + 1  # after this step
        tokens, logprob, parents = self.extend(widen(logits))  # (B, 2W)
        is_last = length >= c["limit"]
        ended = (tokens == self.eos) | is_last[:, None]
        self.merge(tokens[:, :W], logprob[:, :W], parents[:, :W], ended[:, :W], length)
        logprob, order = logprob.masked_fill(ended, NEVER).topk(W, dim=1)
        c["logprob"], parents = self.first(logprob), parents.gather(1, order)
        c["last"] = tokens.gather(1, order)
        if self.live is not None:
            parents = parents * self.live.exists  # so that what does not exist keeps no slot of the cache
        self.draw(c["last"], parents)
        c["length"] = length
        reach = torch.where(c["is_patient"], c["limit"], length)
        best = c["logprob"][:, 0] / self.norm(reach).to(logprob.dtype)
        worst = c["score"].gather(1, c["width"][:, None] - 1)[:, 0]
        done: list[bool] = ((best <= worst) | is_last).tolist()
        return parents, [SEARCHED if is_done else SEARCHING for is_done in done]

    def first(self, scores: Tensor, n: int = 1) -> Tensor:
        """Return scores (B, n · W) with −∞ after the first n · w, where w is the width of the text."""
        if self.live is None:
            return scores
        return scores.masked_fill(~self.live.exists.repeat_interleave(n, 1)[:, : scores.size(1)], NEVER)

    def extend(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the 2w most probable one-token extensions: tokens, log p and parents, (B, 2W) each."""
        banned, early = None, self.is_early()
        if early is not None:
            ends = logits[:, self.eos]
            banned = ends.masked_fill(~early, NEVER)
            ends.masked_fill_(early, NEVER)
        n = 2 * self.width
        best, tokens = largest(logits, min(n, logits.size(1)))  # (L, ≤2W)
        total = log_total(logits, best[:, :1], banned)
        logprob = self.spread(best) + (self.columns["logprob"] - self.spread(total))[:, :, None]
        logprob, order = logprob.flatten(1).topk(min(n, self.width * best.size(1)), dim=1)
        return self.spread(tokens).flatten(1).gather(1, order), self.first(logprob, 2), order // best.size(1)

    def merge(self, tokens: Tensor, logprob: Tensor, parents: Tensor, ended: Tensor, length: Tensor) -> None:
        """Add those of the w best candidates (B, W) that have ended to the pool, and keep the best w of all."""
        c = self.columns
        new = self.first(logprob).masked_fill(~ended, NEVER)
        scores = torch.cat([c["score"].to(new.dtype), new / self.norm(length).to(new.dtype)[:, None]], dim=1)
        scores, order = scores.topk(self.width, dim=1)
        c["score"] = self.first(scores)
        lengths = length[:, None].expand_as(tokens)
        for name, values in zip(("logprob", "token", "parent", "length"), (new, tokens, parents, lengths)):
            both = torch.cat([c[f"pool_{name}"].to(values.dtype), values], dim=1)
            c[f"pool_{name}"] = both.gather(1, order)

    def draw(self, tokens: Tensor, parents: Tensor) -> None:
        """Add a step to the tree, at the length of each text; parents and tokens (B, W)."""
        c, room = self.columns, self.columns["tokens"].size(2)
        if not self.rows:
            return
        places = c["length"][:, None, None].expand(-1, self.width, 1)
        longest = int(c["length"].max()) + 1
        for name, values in (("tokens", tokens), ("parents", parents)):
            if longest > room:
                c[name] = torch.nn.functional.pad(c[name], (0, max(8, room)))
            c[name].scatter_(2, places, values[:, :, None])

    def results(self, row: int) -> list[Hypothesis]:
        c = self.columns
        tree, above = c["tokens"][row].tolist(), c["parents"][row].tolist()
        names = ("score", "pool_logprob", "pool_token", "pool_parent", "pool_length")
        hypotheses = []
        for score, logprob, token, w, length in zip(*(c[name][row].tolist() for name in names)):
            if score > NEVER:
                tokens = [token]
                for t in reversed(range(length - 1)):
                    tokens.append(tree[w][t])
                    w = above[w][t]
                hypotheses.append(Hypothesis(until(tokens[::-1], self.eos), score, logprob))
        return hypotheses

"""Continuous batching: texts join a running batch at any step, and leave it when they are done.

    started = start(model, texts)          read the sources of new texts together: one call of model.start
    batch.arrange(leaving, started, …)     the rows of finished texts go to new ones (layers/open_cache.py)
    step_together(batches)                 one token for every text, whatever its age and settings (open_policies.py)

A text is decoded as it would be alone: rows do not see each other. The texts of a batch have at most W hypotheses, and
the model reads tokens (B, W); batches with different W can still share a pass, which leaves out what does not exist.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.generation.decode import DecodeConfig, Hypothesis, widen
from clearformer.generation.engine import finished, plain
from clearformer.generation.open_policies import OpenBeam, OpenPolicy, OpenSampling, Progress, Sequences
from clearformer.layers.cache import DecodeState, RecurrentState
from clearformer.layers.joined import JoinedState, can_join, joined_cores
from clearformer.layers.linear import few_sizes
from clearformer.layers.masks import within
from clearformer.layers.open_cache import OpenStates, Order, opened
from clearformer.layers.row_choice import rows_choose

WIDTHS = (5, 16, 64, 256)  # hypotheses W of batches with beam search: a text joins the narrowest one that it fits


def width_for(model: Any, one: Sequences) -> int:
    """Return the number of hypotheses W of the batch that a text joins."""
    if one.is_beam and can_join(model):  # otherwise, hypotheses that do not exist would be computed
        return next((width for width in WIDTHS if one.width <= width), one.width)
    return one.width


def start(model: Any, texts: Sequence[Sequences]) -> Any:
    """Read the sources of several texts in one pass, and return the state of the model. It may have rows of padding."""
    device = next(model.parameters()).device
    lengths = [len(one.source) for one in texts]
    n_rows, size = len(texts), max(lengths)
    if device.type == "cpu" and size > 1:
        size = min(-(-size // 8) * 8, getattr(model.config, "max_length", size))
        n_rows = next(n for n in count(n_rows) if few_sizes(n * size) == n * size or size % 8)
    source, mask = padded(texts, n_rows, size)
    adapters = torch.tensor([[one.adapter] for one in texts] + [[0]] * (n_rows - len(texts)), device=device)
    with rows_choose(adapters):
        return model.start(source.to(device), mask.to(device))


def padded(texts: Sequence[Sequences], n_rows: int, size: int) -> tuple[Tensor, Tensor]:
    """Return the sources of texts and their mask, (n_rows, size); in a row without a text, one token is visible."""
    source = torch.zeros(n_rows, size, dtype=torch.long)
    for row, one in zip(source.numpy(), texts):
        row[: len(one.source)] = one.source
    lengths = [len(one.source) for one in texts] + [1] * (n_rows - len(texts))
    return source, within(size, torch.tensor(lengths))  # a row without any token would be NaN


def decode_alone(model: Any, one: Sequences) -> list[Hypothesis]:
    """Decode a text with the plain decoder, for models whose state is not ours."""
    rngs = [] if one.is_beam else [Random(one.seed)]
    source, first, limit = (torch.tensor([x]) for x in (one.source, one.first, one.limit))
    return finished(plain(model, source, None, first, one.eos, limit, one.config, one.width, rngs, [one.seen or ()]))[0]


@dataclass(frozen=True)
class Footprint:
    """The bytes that a model keeps in a batch: per slot of a cache, per token of a source, and per hypothesis."""

    slot: float
    position: float
    hypothesis: float
    is_encoded: bool  # whether the source is read by an encoder, so that its tokens occupy no slots

    @classmethod
    def of(cls, model: Any) -> "Footprint | None":
        """Measure a step of a model. Returns None if texts cannot join and leave, because its state is not ours."""
        one = Sequences([0, 0], 0, -1, 1, DecodeConfig(), 1)
        started = start(model, [one])
        if not isinstance(started, DecodeState | RecurrentState):
            return None
        batch = Batch(model, 1, False, -1)
        batch.arrange((), started, [one], [0])
        assert batch.state is not None
        logits, _ = model.step(batch.policy.last, batch.state)
        slot, position, vectors = batch.state.sizes()
        return cls(slot, position, vectors + 3 * logits.nbytes, hasattr(model, "encoder"))

    def n_bytes(self, one: Sequences) -> int:
        """Return the most that a text can need."""
        n_source = len(one.source)
        n_slots = one.width * one.limit + (0 if self.is_encoded else n_source)
        return int(self.slot * n_slots + self.position * n_source + self.hypothesis * one.width)


class Batch:
    """Texts in progress, each with at most W hypotheses: the state of the model, and the policy."""

    def __init__(self, model: Any, width: int, is_beam: bool, eos: int) -> None:
        device = next(model.parameters()).device
        self.model, self.device = model, device
        self.policy: OpenPolicy = (OpenBeam if is_beam else OpenSampling)(width, eos, device)
        self.state: OpenStates | None = None
        self.logits: Tensor | None = None  # of the last step, (L, V)

    def __len__(self) -> int:
        return len(self.policy.rows)

    def arrange(
        self,
        leaving: Collection[int] = (),
        started: Any = None,
        new: Sequence[Sequences] = (),
        rows: Sequence[int] = (),
    ) -> list[int]:
        """Let the rows `leaving` go, and the texts `new` join: rows `rows` of the state `started`.

        Returns the next contents of the rows: an old row or, from len(self) on, an index into `new`.
        """
        n = len(self)
        order = rearranged(n, set(leaving), len(new))
        if self.state is None:
            self.state = opened(started, self.policy.width)
        if order != list(range(n)):
            self.state.arrange(Order(order, n, list(rows), self.device), started if new else None)
            self.policy.arrange(Order(order, n, range(len(new)), self.device), new)
            self.state.live = self.policy.live
        return order

    def step(self) -> list[Progress]:
        """Choose the next token of every hypothesis; returns the progress of each row."""
        with rows_choose(self.policy.columns["adapter"][:, None]):
            logits, _ = self.model.step(self.policy.last, self.state)
        return self.choose(self.policy.pick(logits.flatten(0, 1)))

    def choose(self, logits: Tensor) -> list[Progress]:
        self.logits = logits
        parents, progress = self.policy.choose(logits)
        if parents is not None and self.state is not None:
            self.state.reorder(parents)
        return progress

    def stop(self, row: int, sequences: Sequence[int]) -> bool:
        """End some sequences of a text, as if EOS had followed; returns whether all of them have ended."""
        has_ended = False
        for sequence in sequences:
            has_ended = self.policy.stop(row, sequence)
        return has_ended

    def top(self, row: int, n: int) -> list[list[tuple[int, float]]]:
        """Return the n most probable tokens of the last step, with their probabilities, for each sequence of a text.

        A beam search has none.
        """
        assert self.logits is not None
        logits = self.logits.unflatten(0, self.policy.last.shape)[row]  # (W, V)
        values, ids = widen(logits).softmax(-1).topk(min(n, logits.size(1)))
        return [list(zip(*both)) for both in zip(ids.tolist(), values.tolist())]

    def results(self, row: int) -> list[Hypothesis]:
        """Return the hypotheses of a text that is done, best first."""
        return self.policy.results(row)


def step_together(batches: Sequence[Batch]) -> list[list[Progress]]:
    """Make a step of several batches of one model, in a single pass if the model can (layers/joined.py)."""
    model, device = batches[0].model, batches[0].device
    sizes = [batch.policy.n_live for batch in batches]
    n_padding = few_sizes(sum(sizes)) - sum(sizes) if device.type == "cpu" else 0
    is_full = len(batches) == 1 and n_padding == 0 and batches[0].policy.live is None
    if is_full or not can_join(model):
        return [batch.step() for batch in batches]
    tokens = torch.cat([batch.policy.pick(batch.policy.last.flatten()) for batch in batches])
    adapters = torch.cat([batch.policy.by_hypothesis("adapter") for batch in batches])
    tokens, adapters = (F.pad(x, (0, n_padding))[None] for x in (tokens, adapters))
    state: Any = JoinedState([batch.state for batch in batches], n_padding)  # type: ignore[misc]
    with rows_choose(adapters), joined_cores(model):
        logits, _ = model.step(tokens, state)  # (1, ΣL + padding, V)
    return [batch.choose(part) for batch, part in zip(batches, logits[0, : sum(sizes)].split(sizes))]


def rearranged(n: int, leaving: set[int], n_new: int) -> list[int]:
    """Return the next contents of rows, of which as few as possible move: new texts, n and up, take free rows first.

    rearranged(5, {1, 2}, 1) returns [0, 5, 4, 3]: the new text takes row 1, and the last one moves to row 2.
    """
    order = [row if row not in leaving else -1 for row in range(n)]
    new = list(range(n, n + n_new))
    free = [row for row in range(n) if row in leaving]
    for row, one in zip(free, new):
        order[row] = one
    order += new[len(free) :]
    for row in free[len(new) :]:
        while order and order[-1] == -1:
            order.pop()
        if row < len(order):
            order[row] = order.pop()
    return order

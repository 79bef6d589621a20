"""Decoding in tables of fixed size: the step, policy included, is prepared once for a size and then only repeated.

    table.begin(source, …)                  sentences are encoded and occupy rows of the table
    table.run()                             one step, during which nothing waits for the host
    look: which rows were done before it?   their hypotheses are read, and the sentences leave
    move                                    to a smaller table if half of the rows are free, to a longer one if full

How a step is prepared is up to `prepare`: recorded as a CUDA graph (`Recorder`), compiled (compiled.py), or not at all
(`as_is`). The host looks one step behind, so that the device always has a step to do. A row that ends therefore takes
part in one more step, whose output is discarded.
"""

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.generation.decode import DecodeConfig, Hypothesis
from clearformer.generation.policies import Beam, Policy, Sampling
from clearformer.layers.fixed_shapes import FIXED_SHAPES, RECORDING
from clearformer.layers.static_cache import StaticState

Step = Callable[[], None]
Prepare = Callable[["Table", Step], Step]

DRAWS = 4  # steps for which random numbers are drawn at a time
FIRST_TOKENS = 32  # capacity of the first table, in steps; longer outputs move to tables of twice the capacity
LENGTHS = {"max_new", "max_ratio", "max_extra"}  # settings that are in the limits already
MAX_TABLES = 32
MEMORY = 0.25  # part of a GPU's memory that all tables may take


def as_is(owner: Any, step: Step) -> Step:
    return step


class Recorder:
    """Records steps as CUDA graphs, which share the memory of intermediate results: only one runs at a time."""

    def __init__(self) -> None:
        self.pool = torch.cuda.graph_pool_handle()
        self.streams: dict[torch.device, torch.cuda.Stream] = {}

    def __call__(self, owner: Any, step: Step) -> Step:
        """Record a step of an owner with a device. It runs once before, so that libraries load and choose kernels."""
        device = owner.device
        dtype, is_mixed = torch.get_autocast_dtype("cuda"), torch.is_autocast_enabled("cuda")
        graph = torch.cuda.CUDAGraph()
        # Autocast would keep the weights that it converts while recording, and later replays would read them, outdated.
        mixed = torch.autocast("cuda", dtype, enabled=is_mixed, cache_enabled=False)
        with RECORDING, FIXED_SHAPES, torch.cuda.device(device), mixed:
            if device not in self.streams:
                self.streams[device] = torch.cuda.Stream(device)
            step()
            torch.cuda.synchronize()
            stream = self.streams[device]
            with torch.cuda.graph(graph, pool=self.pool, stream=stream, capture_error_mode="thread_local"):
                step()
        return graph.replay


@dataclass(frozen=True)
class Size:
    """The size of a table: rows, hypotheses per row, output tokens, and tokens of the source or prompt."""

    rows: int
    width: int
    tokens: int
    source: int
    is_encoded: bool  # whether the source is read by an encoder, so that its tokens occupy no slots

    @property
    def slots(self) -> int:
        trunk = 0 if self.is_encoded else self.source
        return up_to_multiple(trunk + self.width * self.tokens, 8)  # fused kernels prefer multiples of 8


class Table:
    """B sentences in flight: the state of the model, the policy, and the step that updates both."""

    def __init__(self, model: Any, policy: Policy, size: Size, prepare: Prepare) -> None:
        self.model, self.policy, self.size = model, policy, size
        self.state = StaticState(model, size.rows, size.width, size.slots, size.source if size.is_encoded else 0)
        device = policy.done.device
        self.rows = torch.arange(size.rows, device=device)
        self.source = torch.zeros(size.rows, size.source, dtype=torch.long, device=device)
        self.source_mask = torch.zeros_like(self.source, dtype=torch.bool)
        self.source_mask[:, :1] = True
        self.first, self.limits = (torch.zeros(size.rows, dtype=torch.long, device=device) for _ in range(2))
        self.sentences: dict[int, int] = {}  # row -> index of its sentence
        self.age = 0  # steps since the sentences started
        self.prepare, self.run = prepare, prepare(self, self.step)
        self.start: Step | None = None  # only tables in which sentences begin need it

    @property
    def device(self) -> torch.device:
        return self.rows.device

    @property
    def n_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in (*self.state.tensors(), *self.policy.tensors()))

    def read(self) -> None:
        self.state.clear()
        self.state.admit(self.rows, self.model.start(self.source, self.source_mask))
        self.policy.begin(self.first, self.limits)

    def step(self) -> None:
        logits, _ = self.model.step(self.policy.tokens, self.state)
        parents = self.policy.choose(logits)
        if parents is not None:
            self.state.reorder(parents)
        self.state.advance(self.policy.done)

    def begin(
        self, source: Tensor, mask: Tensor | None, first: Tensor, limits: Tensor, prompts: Sequence[Sequence[int]]
    ) -> None:
        """Start n sentences in the first rows of an empty table."""
        n, n_source = source.shape
        size = self.size
        mask = torch.ones_like(source, dtype=torch.bool) if mask is None else mask
        below, right = size.rows - n, size.source - n_source
        self.source.copy_(F.pad(source, (0, right, 0, below)))
        self.source_mask.copy_(F.pad(mask, (0, right, 0, below)))
        self.source_mask[n:, :1] = True  # an unused row sees one token: a row without any would be NaN
        self.first.copy_(F.pad(first, (0, below)))
        self.limits.copy_(F.pad(limits, (0, below)))
        if self.start is None:
            self.start = self.prepare(self, self.read)
        self.start()
        self.policy.notice(prompts)
        self.sentences, self.age = {row: row for row in range(n)}, 0

    def advance(self, rngs: Sequence[Random]) -> None:
        """Run one step, after preparing its random numbers; rngs has one generator per sentence."""
        if rngs and self.age % DRAWS == 0:
            rows = range(self.size.rows)
            self.policy.roll([rngs[self.sentences[r]] if r in self.sentences else None for r in rows], DRAWS)
        self.run()
        self.age += 1

    def release(self, look: "Look") -> dict[int, int]:
        """Let the sentences that are done leave; returns their rows and indices. Their hypotheses stay in the rows."""
        is_done = look.read()
        return {row: self.sentences.pop(row) for row in list(self.sentences) if is_done[row]}

    def take(self, other: "Table") -> None:
        """Take over all sentences of another table, in the first rows of this empty one."""
        rows = torch.tensor(list(other.sentences), device=self.rows.device)
        at = self.rows[: len(rows)]
        self.policy.done.fill_(True)  # other rows may hold an earlier sentence, and steps write there, too
        self.state.used.zero_()
        self.state.put(at, other.state, rows)
        self.policy.put(at, other.policy, rows)
        self.sentences, self.age = dict(enumerate(other.sentences.values())), other.age
        other.sentences = {}
        other.policy.done.fill_(True)


class Look:
    """Values of a table as of now, such as which rows are done; reading them waits for no later step."""

    def __init__(self, values: Tensor) -> None:
        self.event = torch.cuda.Event() if values.is_cuda else None
        self.values = values.to("cpu", non_blocking=True, copy=True)  # into pinned memory, so the host does not wait
        if self.event is not None:
            self.event.record()

    def read(self) -> list[Any]:
        if self.event is not None:
            self.event.synchronize()
        values: list[Any] = self.values.tolist()
        return values


class StaticDecoder:
    """Decodes with one model. Tables are kept for the next batch; the least recently used ones are dropped.

    `lag` is the number of steps that the host looks behind: 1 for a device that works while the host looks.
    """

    def __init__(self, model: Any, prepare: Prepare = as_is, lag: int = 1) -> None:
        self.model, self.prepare, self.lag = model, prepare, lag
        self.tables: OrderedDict[Hashable, Table] = OrderedDict()
        self.facts: tuple[Hashable, ...] = ()

    def decode(
        self,
        source: Tensor,
        mask: Tensor | None,
        first: Tensor,
        eos: int,
        limits: Tensor,
        config: DecodeConfig,
        width: int = 1,
        rngs: Sequence[Random] = (),
        prompts: Sequence[Sequence[int]] = (),
        is_watched: bool = False,
    ) -> Generator[tuple[Tensor, Tensor], Tensor | None, list[list[Hypothesis]]]:
        """Decode sentences, and return the hypotheses of each, best first.

        source and mask (B, S) are the arguments of `model.start`, the others those of `sample_steps` and `beam_search`.
        If `is_watched`, every step yields the remaining rows and their new tokens, and the caller may send back a mask
        of sequences to end.
        """
        self.drop_outdated()
        if not rngs:  # beam search, also with a beam of 1, has no repetition penalty
            config = config.changed(repetition_penalty=1.0)
        n, is_beam = len(first), config.temperature == 0 and width > 1
        longest = max(1, int(limits.max()))
        n_tokens = power(min(longest, max(FIRST_TOKENS, config.min_length)))
        n_source = self.source_size(source)
        size = Size(up(n), width, n_tokens, n_source, is_encoded=hasattr(self.model, "encoder"))
        table = self.table(size, eos, config, is_beam)
        table.begin(source, mask, first, limits, prompts)
        looks, finished = deque[Look](), dict[Table, dict[int, int]]()
        while table.sentences:
            table.advance(rngs)
            if is_watched:
                rows, sentences = (torch.tensor(x, device=table.rows.device) for x in zip(*table.sentences.items()))
                stopped = yield sentences, table.policy.tokens[rows]
                if stopped is not None:
                    table.policy.stop(rows, stopped)
            looks.append(Look(table.policy.done))
            is_last = table.age >= min(table.size.tokens, longest)  # of this table
            done: dict[int, int] = {}
            while len(looks) > (0 if is_last or is_watched else self.lag):
                done |= table.release(looks.popleft())
            finished.setdefault(table, {}).update(done)
            if (done or is_last) and table.sentences:
                table, before = self.fitting(table, eos, config, is_beam), table
                if table is not before:
                    looks.clear()
        return read_results(finished, n)

    def can_hold(self, source: Tensor) -> bool:
        """Whether the model has enough positions for the width of a table for this source, (B, S)."""
        return self.source_size(source) <= getattr(self.model.config, "max_length", math.inf)

    def source_size(self, source: Tensor) -> int:
        """Return the width of a table for a source (B, S): one of a few sizes, or at least a multiple of 8."""
        n = source.size(1)
        rounded = up_to_multiple(up(n), 8)
        return rounded if rounded <= getattr(self.model.config, "max_length", math.inf) else up_to_multiple(n, 8)

    def fitting(self, table: Table, eos: int, config: DecodeConfig, is_beam: bool) -> Table:
        """Return a table with the remaining sentences: the same one, or one with fewer rows or more capacity."""
        n, size = len(table.sentences), table.size
        rows = up(n) if 2 * n <= size.rows else size.rows
        tokens = size.tokens if table.age < size.tokens else 2 * size.tokens
        new = self.table(replace(size, rows=rows, tokens=tokens), eos, config, is_beam)
        if new is not table:
            new.take(table)
        return new

    def table(self, size: Size, eos: int, config: DecodeConfig, is_beam: bool) -> Table:
        """Return the table of this size that is prepared for these settings."""
        precision = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
        key = (size, eos, is_beam, precision, tuple(config.model_dump(exclude=LENGTHS).values()))
        if key not in self.tables:
            self.drop_oldest(next(self.model.decoder.parameters()).device)
            self.tables[key] = new_table(self.model, size, eos, config, is_beam, self.prepare)
        self.tables.move_to_end(key)
        return self.tables[key]

    def drop_oldest(self, device: torch.device) -> None:
        """Make room for another table: drop the least recently used ones, except the last, which may be in use."""
        limit = most_bytes(device)
        while len(self.tables) > 1 and (
            len(self.tables) >= MAX_TABLES or sum(table.n_bytes for table in self.tables.values()) > limit
        ):
            self.tables.popitem(last=False)

    def drop_outdated(self) -> None:
        """Drop all tables if weights have moved in memory, where recorded steps read them, or the adapter changed."""
        facts: list[Hashable] = []
        for module in modules(self.model):
            if module._parameters:
                facts += [weight.data_ptr() for weight in module._parameters.values() if weight is not None]
            if "active" in vars(module):  # the adapter in use
                facts.append(module.active)
        if tuple(facts) != self.facts:
            self.forget()
            self.facts = tuple(facts)

    def forget(self) -> None:
        """Drop all tables. The memory pool of their graphs cannot be used again."""
        self.tables.clear()
        if isinstance(self.prepare, Recorder):
            self.prepare = Recorder()


def new_table(model: Any, size: Size, eos: int, config: DecodeConfig, is_beam: bool, prepare: Prepare) -> Table:
    """Return a table without sentences, whose step is prepared for these settings."""
    args = (size.rows, size.width, size.tokens, eos, config, next(model.decoder.parameters()))
    policy = Beam(*args) if is_beam else Sampling(*args, vocab=model.unembedding.out_features)
    return Table(model, policy, size, prepare)


def most_bytes(device: torch.device) -> float:
    """Return the memory that the tables of a model may take."""
    return MEMORY * torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else math.inf


def read_results(finished: Mapping[Table, Mapping[int, int]], n: int) -> list[list[Hypothesis]]:
    """Read the hypotheses of all n sentences; for each table, `finished` has rows and the index of their sentence.

    They are read at the end, because reading waits for the device, which would then wait for the host.
    """
    results: list[list[Hypothesis]] = [[] for _ in range(n)]
    for table, rows in finished.items():
        at = torch.tensor(list(rows), dtype=torch.long, device=table.rows.device)
        for sentence, hypotheses in zip(rows.values(), table.policy.results(at)):
            results[sentence] = hypotheses
    return results


def modules(model: nn.Module) -> list[nn.Module]:
    """Return all modules, shared ones twice. For every batch, `model.modules()` would be several times slower."""
    result = [model]
    for module in result:  # which grows meanwhile
        if module._modules:
            result += [child for child in module._modules.values() if child is not None]
    return result


def power(n: int, least: int = 1) -> int:
    """Return the smallest power of two that is at least n, or 0 for 0."""
    return max(least, 1 << (n - 1).bit_length()) if n else 0


def up(n: int) -> int:
    """Return the smallest of 1, 2, 3, 4, 6, 8, 12, 16, 24, … that is at least n."""
    whole = power(n)
    return whole * 3 // 4 if whole >= 4 and n <= whole * 3 // 4 else whole


def up_to_multiple(n: int, of: int) -> int:
    return -(-n // of) * of

"""Continuous batches whose steps are recorded: texts join and leave the rows of tables of fixed size (static.py).

    tables.start(texts)                           the sources of new texts are read, also by a recording
    batch.arrange(leaving, started, new, rows)    as in continuous.py, but what stays does not move; rows may be free
    step_tables(batches, n_steps)                 every table repeats its step, then the host reads what was chosen

On a GPU it takes longer to launch the kernels of a small step than to run them; a recorded step is launched as one, and
the host looks only after several. A text that ends between two looks takes part in the steps that are left, whose
output is discarded. The texts of a table have equal settings, so that there are more batches than without tables, each
with a recording of its own. Greedy and beam search have tables; samples, repetition penalties and adapters are left to
continuous.py, and so are large steps: one pass for all batches is then faster than one for each.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Any

import torch

from clearformer.generation.continuous import padded, start
from clearformer.generation.decode import Hypothesis
from clearformer.generation.engine import align_head, can_record
from clearformer.generation.open_policies import SEARCHED, SEARCHING, Progress, Sequences
from clearformer.generation.policies import Sampling
from clearformer.generation.static import (
    FIRST_TOKENS,
    LENGTHS,
    MAX_TABLES,
    Look,
    Recorder,
    Size,
    Step,
    Table,
    most_bytes,
    new_table,
    power,
    up_to_multiple,
)

FEWEST_ROWS = 8
SPARE = 4  # a table with more than so many times the rows that are needed is left for a smaller one
SMALL_STEP = 1e10  # weights times hypotheses: 80 hypotheses of GPT-2 124M
STRIDE = 4  # steps between two looks
SMALL_SOURCES = 4096  # tokens, padding included, that a recording may read; more take longer to compute than to launch
ENDED = Progress((None,), (0.0,), True)


class Tables:
    """The tables of one model that are not in use, the least recently used first, and the recordings of its start."""

    def __init__(self, model: Any, prepare: Callable[[Any, Step], Step]) -> None:
        self.model, self.prepare, self.is_full = model, prepare, False
        self.device = next(model.parameters()).device
        self.n_weights = sum(weight.numel() for weight in model.parameters())
        self.idle: list[tuple[Hashable, Table]] = []
        self.readings: OrderedDict[tuple[int, int], Reading] = OrderedDict()
        self.shapes: set[tuple[int, int]] = set()  # that occurred: only those that recur are worth a recording

    @classmethod
    def of(cls, model: Any) -> "Tables | None":
        """Return the tables of a model, or None if its steps cannot be recorded, as on a CPU."""
        if not can_record(model):
            return None
        align_head(model)
        return cls(model, Recorder())

    def can_hold(self, one: Sequences) -> bool:
        """Whether a text is decoded in a table: by greedy or beam search, without a penalty or an adapter."""
        config = one.config
        is_beam = one.is_beam and one.width == config.beam
        is_greedy = config.temperature == 0 and one.width == 1 and (one.seen is None or config.repetition_penalty == 1)
        return not self.is_full and one.adapter == 0 and (is_beam or is_greedy)

    def is_small(self, n_hypotheses: int) -> bool:
        """Whether the step of so many hypotheses is small, so that a table is faster."""
        return n_hypotheses * self.n_weights <= SMALL_STEP

    def start(self, texts: Sequence[Sequences]) -> Any:
        """Read the sources of texts, as `start` does. What it returns is overwritten by the next start."""
        longest = max(len(one.source) for one in texts)
        shape = power(len(texts), FEWEST_ROWS), up_to_multiple(longest, 16)
        if self.is_full or longest == 0 or shape[0] * shape[1] > SMALL_SOURCES or shape[1] > self.max_length:
            return start(self.model, texts)
        if shape not in self.shapes:
            self.shapes.add(shape)
            return start(self.model, texts)
        return self.reading(shape).read(texts)

    def reading(self, shape: tuple[int, int]) -> "Reading":
        """Return the recording for a shape, of which there is one from now on."""
        if shape not in self.readings:
            try:
                self.readings[shape] = Reading(self, *shape)
            except torch.OutOfMemoryError:
                self.give_up()
                raise
        self.readings.move_to_end(shape)
        limit = most_bytes(self.device)
        while len(self.readings) > 1 and (
            len(self.readings) > MAX_TABLES or sum(reading.n_bytes for reading in self.readings.values()) > limit
        ):
            self.shapes.discard(self.readings.popitem(last=False)[0])
        return self.readings[shape]

    @property
    def max_length(self) -> float:
        return float(getattr(self.model.config, "max_length", math.inf))

    def lend(self, size: Size, one: Sequences) -> Table:
        """Return a table without texts, for texts with the settings of this one."""
        key = size, settings(one)
        for place, (other, table) in enumerate(self.idle):
            if other == key:
                del self.idle[place]
                table.policy.done.fill_(True)
                table.state.used.zero_()
                table.state.clear()
                return table
        config = one.config.changed(repetition_penalty=1.0)
        try:
            return new_table(self.model, size, one.eos, config, one.is_beam, self.prepare)
        except torch.OutOfMemoryError:
            self.give_up()
            raise

    def give_up(self) -> None:
        """Free the memory of all tables and recordings. From now on, batches grow with their texts, and need less."""
        self.is_full = True
        self.idle.clear()
        self.readings.clear()

    def give_back(self, table: Table, one: Sequences) -> None:
        if self.is_full:
            return
        self.idle.append(((table.size, settings(one)), table))
        limit = most_bytes(table.rows.device)
        while len(self.idle) > MAX_TABLES or sum(idle.n_bytes for _, idle in self.idle) > limit:
            del self.idle[0]


class Reading:
    """A call of `model.start` for n texts with sources of up to `size` tokens, prepared once and then repeated."""

    def __init__(self, tables: Tables, n: int, size: int) -> None:
        self.model, self.device = tables.model, tables.device
        self.state: Any = None
        self.source = torch.zeros(n, size, dtype=torch.long, device=self.device)
        self.mask = torch.ones_like(self.source, dtype=torch.bool)
        self.run = tables.prepare(self, self.start)

    @property
    def n_bytes(self) -> int:
        """The bytes that it keeps: the source and, from the first call on, keys and values."""
        state = self.state
        pairs = [] if state is None else [(cache.k, cache.v) for cache in state.caches] + (state.memory or [])
        return self.source.nbytes + self.mask.nbytes + sum(k.nbytes + v.nbytes for k, v in pairs)

    def start(self) -> None:
        self.state = self.model.start(self.source, self.mask)

    def read(self, texts: Sequence[Sequences]) -> Any:
        for buffer, values in zip((self.source, self.mask), padded(texts, *self.source.shape)):
            buffer.copy_(values, non_blocking=True)
        self.run()
        return self.state


def settings(one: Sequences) -> Hashable:
    """Return what the texts of a table have in common."""
    return one.eos, one.is_beam, *one.config.model_dump(exclude=LENGTHS | {"repetition_penalty"}).values()


class TableBatch:
    """Texts in progress in the rows of a table; a `Batch` (continuous.py) in all that the scheduler asks of it."""

    def __init__(self, tables: Tables, one: Sequences, n_source: int) -> None:
        """The texts have settings like this one, and sources of at most n_source tokens."""
        self.tables, self.model, self.one = tables, tables.model, one
        self.n_source = min(n_source, getattr(self.model.config, "max_length", n_source))
        self.device = next(self.model.parameters()).device
        self.table: Table | None = None
        self.ages: list[int] = []  # steps since the text of each row started
        self.free: set[int] = set()
        self.look: Look | None = None
        self.done: list[int] = []  # rows that ended with the last step
        self.outcomes: dict[int, list[Hypothesis]] = {}

    def __len__(self) -> int:
        return len(self.ages)

    @property
    def n_rows(self) -> int:
        return 0 if self.table is None else self.table.size.rows

    def arrange(
        self,
        leaving: Collection[int] = (),
        started: Any = None,
        new: Sequence[Sequences] = (),
        rows: Sequence[int] = (),
    ) -> list[int]:
        """Let the rows `leaving` go, and the texts `new` join: rows `rows` of the state `started`.

        Returns the next contents of the rows: an old row or, from len(self) on, an index into `new`. A row that stays
        free has its old contents.
        """
        n = len(self)
        stay = [row for row in range(n) if row not in leaving]
        n_next = len(stay) + len(new)
        if n_next == 0:
            self.close()
            return []
        if n_next > self.n_rows or (self.n_rows > FEWEST_ROWS and SPARE * n_next <= self.n_rows):
            self.move(stay, power(n_next, FEWEST_ROWS), FIRST_TOKENS if self.table is None else self.table.size.tokens)
            at, order = [*range(len(stay), n_next)], [*stay, *range(n, n + len(new))]
        else:
            at = [*sorted(leaving), *range(n, n + len(new))][: len(new)]
            order = [*range(max([n, *(row + 1 for row in at)]))]
            for i, row in enumerate(at):
                order[row] = n + i
            self.leave(set(leaving) - self.free)
        assert self.table is not None
        self.free -= set(at)
        self.ages += [0] * (len(order) - len(self.ages))
        if new:
            for row in at:
                self.ages[row] = 0
            places = self.indices(at)
            self.table.state.empty(places)
            self.table.state.admit(places, started, self.indices(rows), self.n_source)
            first, limits = (self.indices(values) for values in zip(*((one.first, one.limit) for one in new)))
            self.table.policy.admit(places, first, limits)
        return order

    def leave(self, rows: Collection[int]) -> None:
        """Free some rows, whose texts may not be done. What a step writes there stays in their first slots."""
        if rows and self.table is not None:
            places = self.indices(rows)
            self.table.policy.done.index_fill_(0, places, True)
            self.table.state.used.index_fill_(0, places, 0)
            self.free |= {*rows}

    def indices(self, rows: Iterable[int]) -> torch.Tensor:
        return torch.tensor([*rows], dtype=torch.long).to(self.device, non_blocking=True)

    def move(self, rows: Sequence[int], n_rows: int, n_tokens: int) -> None:
        """Move the texts in some rows to the first rows of another table."""
        size = Size(n_rows, self.one.width, n_tokens, self.n_source, is_encoded=hasattr(self.model, "encoder"))
        table, before = self.tables.lend(size, self.one), self.table
        if before is not None and rows:
            at, origin = table.rows[: len(rows)], self.indices(rows)
            table.state.put(at, before.state, origin)
            table.policy.put(at, before.policy, origin)
        self.free = {row for row, origin in enumerate(rows) if origin in self.free}
        self.ages = [self.ages[row] for row in rows]
        if before is not None:
            self.tables.give_back(before, self.one)
        self.table = table

    def close(self) -> None:
        """Give the table back; the texts in it are gone."""
        if self.table is not None:
            self.tables.give_back(self.table, self.one)
        self.table, self.ages, self.free = None, [], set()

    def launch(self, n_steps: int = 1) -> None:
        """Start up to n_steps steps. Their outcome is read later, while other tables make theirs."""
        assert self.table is not None
        n, n_tokens = len(self), self.table.size.tokens
        n_left = n_tokens - max(age for row, age in enumerate(self.ages) if row not in self.free)
        if n_left == 0:
            self.move(range(n), self.n_rows, 2 * n_tokens)
            n_left = n_tokens
        n_steps, policy = min(n_steps, n_left), self.table.policy
        before = policy.length[:n].clone()
        for _ in range(n_steps):
            self.table.run()
        self.ages = [age + n_steps for age in self.ages]
        columns = [policy.done[:n, None]]
        if isinstance(policy, Sampling):
            places = before[:, None] + torch.arange(n_steps, device=self.device)
            places = places.clamp_max(policy.n_tokens)  # the last one is for tokens after the end
            columns += [(policy.length[:n] - before)[:, None]]
            columns += [history[:n, 0].gather(1, places) for history in (policy.history, policy.logprobs)]
        self.look, self.outcomes = Look(torch.cat([column.double() for column in columns], dim=1)), {}

    def outcome(self) -> list[list[Progress]]:
        """Wait for the steps; returns the progress of each row, step by step, and none of free rows."""
        assert self.look is not None
        values = self.look.read()
        self.done = [row for row, columns in enumerate(values) if columns[0] and row not in self.free]
        return [[] if row in self.free else progress_of(*columns) for row, columns in enumerate(values)]

    def stop(self, row: int, sequences: Sequence[int]) -> bool:
        """End some sequences of a text, as if EOS had followed; returns whether all of them have ended."""
        if sequences:
            assert self.table is not None
            self.table.policy.stop(self.indices([row]), torch.ones(1, 1, dtype=torch.bool, device=self.device))
        return bool(sequences)

    def results(self, row: int) -> list[Hypothesis]:
        """Return the hypotheses of a text that is done, best first; all rows that are done are read together."""
        assert self.table is not None
        if row not in self.outcomes:
            rows = self.done if row in self.done else [row]
            self.outcomes.update(zip(rows, self.table.policy.results(self.indices(rows))))
        return self.outcomes.pop(row)


def progress_of(is_done: float, n_new: float | None = None, *tokens_and_logprobs: float) -> list[Progress]:
    """Return the progress of a text in some steps: n_new tokens, or none that is known yet (beam search)."""
    if n_new is None:
        return [SEARCHED if is_done else SEARCHING]
    new, logprobs = tokens_and_logprobs[: int(n_new)], tokens_and_logprobs[len(tokens_and_logprobs) // 2 :]
    steps = [Progress((int(token),), (logprob,), False) for token, logprob in zip(new, logprobs)]
    if is_done:
        steps.append(ENDED)
    return steps


def step_tables(batches: Sequence[TableBatch], n_steps: int = 1) -> list[list[list[Progress]]]:
    """Make up to n_steps steps of several batches; the host waits when all have been launched."""
    for batch in batches:
        batch.launch(n_steps)
    return [batch.outcome() for batch in batches]

"""Continuous batches whose steps are recorded: texts join and leave the rows of tables of fixed size (static.py).

    batch.arrange(leaving, started, new, rows)    as in continuous.py, but what stays does not move; rows may be free
    step_tables(batches)                          every table repeats its step, then the host reads what was chosen

On a GPU it takes longer to launch the kernels of a small step than to run them; a recorded step is launched as one. The
texts of a table have equal settings, so that there are more batches than without tables, each with a recording of its
own. Greedy and beam search have tables; samples, repetition penalties and adapters are left to continuous.py, and so
are large steps: one pass for all batches is then faster than one for each.
"""

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any

import torch

from clearformer.generation.decode import Hypothesis
from clearformer.generation.engine import can_record
from clearformer.generation.open_policies import Progress, Sequences
from clearformer.generation.policies import Beam, Policy, Sampling
from clearformer.generation.static import (
    FIRST_TOKENS,
    LENGTHS,
    MAX_TABLES,
    Look,
    Prepare,
    Recorder,
    Size,
    Table,
    most_bytes,
    power,
)
from clearformer.layers.embeddings import Unembedding

FEWEST_ROWS = 8
SPARE = 4  # a table with more than so many times the rows that are needed is left for a smaller one
SMALL_STEP = 1e10  # weights times hypotheses: 80 hypotheses of GPT-2 124M


class Tables:
    """The tables of one model that are not in use, the least recently used first."""

    def __init__(self, model: Any, prepare: Prepare) -> None:
        self.model, self.prepare, self.is_full = model, prepare, False
        self.n_weights = sum(weight.numel() for weight in model.parameters())
        self.idle: list[tuple[Hashable, Table]] = []

    @classmethod
    def of(cls, model: Any) -> "Tables | None":
        """Return the tables of a model, or None if its steps cannot be recorded, as on a CPU."""
        if not can_record(model):
            return None
        if isinstance(head := getattr(model, "unembedding", None), Unembedding):
            head.align()
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
        like = next(self.model.decoder.parameters())
        args = (size.rows, size.width, size.tokens, one.eos, one.config.changed(repetition_penalty=1.0), like)
        try:
            policy: Policy = Beam(*args) if one.is_beam else Sampling(*args, vocab=self.model.unembedding.out_features)
            return Table(self.model, policy, size, self.prepare)
        except torch.OutOfMemoryError:
            self.is_full = True  # from now on, batches grow with their texts, and need less
            self.idle.clear()
            raise

    def give_back(self, table: Table, one: Sequences) -> None:
        if self.is_full:
            return
        self.idle.append(((table.size, settings(one)), table))
        limit = most_bytes(table.rows.device)
        while len(self.idle) > MAX_TABLES or sum(idle.n_bytes for _, idle in self.idle) > limit:
            del self.idle[0]


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
            self.table.state.admit(places, started, self.indices(rows))
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

    def launch(self) -> None:
        """Start a step. Its outcome is read later, while other tables make theirs."""
        assert self.table is not None
        n, n_tokens = len(self), self.table.size.tokens
        if max(age for row, age in enumerate(self.ages) if row not in self.free) >= n_tokens:
            self.move(range(n), self.n_rows, 2 * n_tokens)
        self.table.run()
        self.ages = [age + 1 for age in self.ages]
        policy = self.table.policy
        columns = [policy.done]
        if isinstance(policy, Sampling):
            last = (policy.length - 1).clamp_min(0)[:, None]
            columns += [policy.tokens[:, 0], policy.logprobs[:, 0].gather(1, last)[:, 0]]
        self.look, self.outcomes = Look(torch.stack([column[:n].double() for column in columns])), {}

    def outcome(self) -> list[Progress]:
        """Wait for the step; returns the progress of each row."""
        assert self.look is not None
        done, *chosen = self.look.read()
        progress = [
            Progress([int(one[0])] if one else [], [one[1]] if one else [], bool(is_done))
            for is_done, one in zip(done, zip(*chosen) if chosen else [()] * len(done))
        ]
        self.done = [row for row, one in enumerate(progress) if one.is_done and row not in self.free]
        return progress

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


def step_tables(batches: Sequence[TableBatch]) -> list[list[Progress]]:
    """Make a step of several batches; the host waits when all have been launched."""
    for batch in batches:
        batch.launch()
    return [batch.outcome() for batch in batches]

"""Which texts are decoded together, and when the next ones join.

    group      texts of one model with similar numbers of hypotheses and tokens: one Batch (generation/continuous.py),
               or on a GPU, if their settings are equal, one TableBatch (generation/open_tables.py)
    turn       finished texts leave, new ones take their rows, and all groups make a step together
    room       at most `rows` texts, `hypotheses` of all texts together, and `bytes` of caches

If a step raises an error, nobody knows which text is to blame. All texts of the step start again in two halves, apart
from each other. A text that raises an error alone fails; all others go on.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, Protocol

import torch

from clearformer.generation.continuous import Batch, start, step_together, width_for
from clearformer.generation.decode import Hypothesis
from clearformer.generation.open_policies import Progress, Sequences
from clearformer.generation.open_tables import STRIDE, TableBatch, Tables, settings, step_tables
from clearformer.handles.batching import BUDGET
from clearformer.memory import machine_bytes
from clearformer.serve.shared import Sharing
from clearformer.serve.texts import Text
from clearformer.serve.waiting import Waiting

READ_AT_ONCE = 4096  # tokens of sources per turn, padding included; more would stop the texts in progress for too long
PATIENCE = 6  # turns that texts wait for others to join with
BESIDE_STEPS = 8  # texts in progress wait for an eighth of a pass at a time
COMPANY = 4  # texts do not wait if they are at least a quarter of the texts in progress
SMALL_SOURCE = 64  # tokens: longer sources join another group, and so do those longer than 256, 1,024 …


@dataclass(frozen=True)
class Room:
    """What an engine may hold at a time. A text that needs more hypotheses than there are is decoded alone."""

    rows: int = 64
    hypotheses: int = 512
    bytes: int = 2**31

    @classmethod
    def of(cls, device: torch.device) -> "Room":
        """Return the room on a device: a quarter of the memory, or half of what is free on a GPU."""
        if device.type == "cuda":
            return cls(256, 2048, torch.cuda.mem_get_info(device)[0] // 2)
        return cls(bytes=machine_bytes() // 4)


class Load:
    """What texts take of a room. The rows of a group are equally long, so each counts as the longest of them."""

    def __init__(self, room: Room, texts: Iterable[Text]) -> None:
        self.room, self.n_rows, self.n_hypotheses = room, 0, 0
        self.groups: dict[Hashable, tuple[int, int]] = {}  # rows, and bytes of the longest
        for text in texts:
            self.add(text)

    def add(self, text: Text) -> None:
        self.n_rows, self.n_hypotheses = self.n_rows + 1, self.n_hypotheses + text.n_rows
        n, longest = self.groups.get(key_of(text), (0, 0))
        self.groups[key_of(text)] = n + 1, max(longest, text.n_bytes)

    @property
    def n_bytes(self) -> int:
        return sum(n * longest for n, longest in self.groups.values())

    def has_room_for(self, text: Text) -> bool:
        """Whether there is room for one more text. A text alone may have more hypotheses than there is room for."""
        room, key = self.room, key_of(text)
        n, longest = self.groups.get(key, (0, 0))
        fits = self.n_rows < room.rows and self.n_hypotheses + text.n_rows <= room.hypotheses
        n_bytes = self.n_bytes - n * longest + (n + 1) * max(longest, text.n_bytes)
        return (fits or self.n_rows == 0) and n_bytes <= room.bytes


class Listener(Protocol):
    """Who receives the tokens, results and errors of texts: reports.py, or a worker process."""

    def heard(self, text: Text, steps: Sequence[Progress], top: Callable[[], list[Any]]) -> list[int]:
        """Take the tokens of some steps, and return the sequences to end. `top` returns the most probable tokens."""

    def finished(self, text: Text, hypotheses: list[Hypothesis]) -> None: ...

    def failed(self, text: Text, error: Exception) -> None: ...


@dataclass(eq=False)
class Group:
    batch: Batch | TableBatch
    texts: list[Text] = field(default_factory=list)  # by row
    free: set[int] = field(default_factory=set)  # rows whose text is gone

    def __iter__(self) -> Iterator[Text]:
        return (text for row, text in enumerate(self.texts) if row not in self.free)


class Scheduler:
    """The texts in progress."""

    def __init__(self, room: Room, listener: Listener) -> None:
        self.room, self.listener = room, listener
        self.groups: dict[Hashable, Group] = {}
        self.joining: list[Text] = []  # texts that are being read
        self.again: list[Text] = []  # texts that start again, in halves
        self.trials = count(1)
        self.patience = PATIENCE  # turns that a few texts wait for others

    def __iter__(self) -> Iterator[Text]:
        yield from self.joining
        yield from self.again
        for group in list(self.groups.values()):
            yield from group

    @property
    def n_texts(self) -> int:
        """The number of texts in progress, for any thread."""
        return len(self.again) + sum(len(group.texts) - len(group.free) for group in list(self.groups.values()))

    def turn(self, new: Iterable[Text]) -> None:
        """Let texts leave and join, and make a step. Texts whose request is done leave, since it was cancelled."""
        for group in self.groups.values():
            group.free |= {row for row, text in enumerate(group.texts) if text.ticket.is_done}
        self.joining, self.again = [text for text in (*self.again, *new) if not text.ticket.is_done], []
        self.read(self.joining)
        self.joining = []
        together: dict[Hashable, list[Hashable]] = {}
        for key, group in list(self.groups.items()):
            self.arrange(key)
            if len(group.texts) > len(group.free) and key in self.groups:
                kind = id(group.batch.model), group.texts[0].trial, type(group.batch)
                together.setdefault(kind, []).append(key)
            else:
                self.drop(key)
        for keys in together.values():
            self.step(keys)

    def admit(self, waiting: Waiting, most_bytes: int | None = None) -> Iterator[Text]:
        """Remove the texts from the queue for which there is room, in turn.

        To read the sources of a few texts takes nearly as long as a step, so that a few texts wait for others, for a
        few turns. Those with tables do not: they are read by a recording, and a turn of theirs is several steps. After
        a text that fills a turn come no others, so that the texts in progress wait for one such text at a time.
        `most_bytes` limits the room further, for all texts in progress.
        """
        room = self.room if most_bytes is None else replace(self.room, bytes=min(self.room.bytes, most_bytes))
        n_running, n_read = self.n_texts, 0
        n_hypotheses: int | None = None
        load: Load | None = None  # to add up takes as long as to admit
        n_joining = min(len(waiting), self.room.rows - n_running)
        self.patience = self.patience - 1 if len(waiting) else PATIENCE
        waits = n_joining < n_running // COMPANY and self.patience > 0
        while n_read <= READ_AT_ONCE and (text := waiting.first()) is not None and not text.is_for_crew:
            if text.ticket.is_done:
                waiting.pop()
                continue
            if isinstance(text, Sharing):
                most = BUDGET.get(text.device.type, BUDGET["cpu"])
                yield from waiting.take_pass(most // BESIDE_STEPS if n_running or n_read else most)
                return
            if text.fills_a_turn:
                yield waiting.pop()
                return
            if text.joins:
                if waits and text.tables is None:
                    return
                if load is None:
                    load = Load(room, self)
                if text.tables is not None:
                    if n_hypotheses is None:  # all that wait will soon be decoded together
                        n_hypotheses = load.n_hypotheses + waiting.n_hypotheses
                    if text.tables.is_full or not text.tables.is_small(n_hypotheses):
                        text.tables, text.kind = None, None
                        continue  # without tables, it may wait
                if not load.has_room_for(text):
                    return
                self.patience = PATIENCE
                load.add(text)
                n_read += len(text.sequences.source)
            yield waiting.pop()

    def read(self, texts: list[Text]) -> None:
        """Read the sources of new texts, those of similar length together, and let them join their groups."""
        texts = sorted(texts, key=lambda text: (id(text.model), text.trial, len(text.sequences.source)))
        while texts:
            n = 1
            while n < len(texts) and is_together(texts[0], texts[n], n + 1):
                n += 1
            self.read_together(texts[:n])
            texts = texts[n:]

    def read_together(self, texts: list[Text]) -> None:
        try:
            sources = [text.sequences for text in texts]
            tables: Tables | None = next((text.tables for text in texts if text.tables is not None), None)
            started = start(texts[0].model, sources) if tables is None else tables.start(sources)
        except Exception as error:
            self.split(texts, error)
            return
        joining: dict[Hashable, list[int]] = {}
        for row, text in enumerate(texts):
            joining.setdefault(key_of(text), []).append(row)
        for key, rows in joining.items():
            new = [texts[row] for row in rows]
            if key not in self.groups:
                self.groups[key] = Group(batch_for(new[0]))
            self.arrange(key, started, new, rows)

    def arrange(self, key: Hashable, started: Any = None, new: Sequence[Text] = (), rows: Sequence[int] = ()) -> None:
        """Let texts leave a group, and new ones join it: rows `rows` of the state `started`."""
        group = self.groups[key]
        if not group.free and not new:
            return
        try:
            order = group.batch.arrange(group.free, started, [text.sequences for text in new], rows)
        except Exception as error:  # such as a lack of memory
            self.drop(key)
            self.split([*group, *new], error)
            return
        both = [*group.texts, *new]
        group.texts, group.free = [both[i] for i in order], {row for row, i in enumerate(order) if i in group.free}

    def step(self, keys: list[Hashable]) -> None:
        """Make a step of groups of the same model, or some steps if they have tables."""
        groups = [self.groups[key] for key in keys]
        try:
            batches: list[Any] = [group.batch for group in groups]
            if isinstance(batches[0], TableBatch):
                is_watched = any(text.work.stop for group in groups for text in group)  # it may end at any token
                progress = step_tables(batches, 1 if is_watched else STRIDE)
            else:
                progress = [[[new] for new in rows] for rows in step_together(batches)]
        except Exception as error:
            for key in keys:
                self.drop(key)
            self.split([text for group in groups for text in group], error)
            return
        for group, rows in zip(groups, progress):
            for row, (text, steps) in enumerate(zip(group.texts, rows)):
                if row in group.free or not steps:
                    continue
                stopped = self.listener.heard(text, steps, partial(top_of, group, row, text.work.top))
                if steps[-1].is_done or (stopped and group.batch.stop(row, stopped)):
                    group.free.add(row)
                    self.listener.finished(text, group.batch.results(row))

    def drop(self, key: Hashable) -> None:
        """Forget a group, whose table others may use."""
        group = self.groups.pop(key, None)
        if group is not None and isinstance(group.batch, TableBatch):
            group.batch.close()

    def split(self, texts: list[Text], error: Exception) -> None:
        """Let the texts of a step that raised an error start again in two halves, or fail if there is only one."""
        if len(texts) < 2 and not any(text.tables for text in texts):  # a table may have been too large
            for text in texts:
                self.listener.failed(text, error)
            return
        for half in (texts[: len(texts) // 2], texts[len(texts) // 2 :]):
            trial = next(self.trials)
            for text in half:
                text.trial = trial
                text.restart()
        self.again += texts

    def clear(self) -> list[Text]:
        """Give up all texts in progress, and return them."""
        texts = [*self]
        for key in list(self.groups):
            self.drop(key)
        for rest in (self.joining, self.again):
            rest.clear()
        return texts


def top_of(group: Group, row: int, n: int) -> list[Any]:
    assert isinstance(group.batch, Batch)  # a text that needs it has no table
    return group.batch.top(row, n)


def key_of(text: Text) -> Hashable:
    """Return the key of the group that a text joins."""
    if text.kind is None:
        one: Sequences = text.sequences
        if text.tables is None:
            text.kind = id(text.model), width_for(text.model, one), one.is_beam, one.eos, size_of(one)
        else:
            text.kind = id(text.tables), one.width, settings(one), size_of(one)
    return text.kind, text.trial


def size_of(one: Sequences) -> int:
    """Return the number of tokens that sources of the group may have."""
    size = SMALL_SOURCE
    while len(one.source) > size:
        size *= 4
    return size


def batch_for(text: Text) -> Batch | TableBatch:
    """Return an empty batch for the group of a text."""
    one: Sequences = text.sequences
    if text.tables is not None:
        return TableBatch(text.tables, one, size_of(one))
    return Batch(text.model, width_for(text.model, one), one.is_beam, one.eos)


def is_together(shortest: Text, longest: Text, n: int) -> bool:
    """Whether n texts, sorted by the length of their source, are read in one pass."""
    size = len(longest.sequences.source)
    return (
        shortest.model is longest.model
        and shortest.trial == longest.trial
        and n * size <= READ_AT_ONCE
        and size <= 2 * len(shortest.sequences.source) + 8  # a pass costs more than a little padding
    )

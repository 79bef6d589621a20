"""Which texts are decoded together, and when the next ones join.

    group      texts with the same model, number of hypotheses and size of source: one Batch (generation/continuous.py)
    turn       finished texts leave, new ones take their rows, and all groups make a step together
    room       at most `rows` texts, `hypotheses` of all texts together, and `bytes` of caches

If a step raises an error, nobody knows which text is to blame. All texts of the step start again in two halves, apart
from each other. A text that raises an error alone fails; all others go on.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Protocol

import torch

from clearformer.generation.continuous import Batch, start, step_together
from clearformer.generation.decode import Hypothesis
from clearformer.generation.open_policies import Progress, Sequences
from clearformer.memory import machine_bytes
from clearformer.serve.waiting import Text, Waiting

READ_AT_ONCE = 4096  # tokens of sources per turn, padding included; more would stop the texts in progress for too long
PATIENCE = 4  # turns that texts wait for others to join with
COMPANY = 8  # texts do not wait if they are at least an eighth of the texts in progress
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

    def has_room_for(self, text: Text) -> bool:
        room, key = self.room, key_of(text)
        n, longest = self.groups.get(key, (0, 0))
        n_bytes = sum(n * longest for n, longest in self.groups.values()) - n * longest
        fits = (
            self.n_rows < room.rows
            and self.n_hypotheses + text.n_rows <= room.hypotheses
            and n_bytes + (n + 1) * max(longest, text.n_bytes) <= room.bytes
        )
        return fits or self.n_rows == 0


class Listener(Protocol):
    """What happens to texts is told to the engine."""

    def heard(self, text: Text, progress: Progress, top: Callable[[], list[Any]]) -> list[int]:
        """Take the tokens of a step, and return the sequences to end. `top` returns the most probable tokens."""

    def finished(self, text: Text, hypotheses: list[Hypothesis]) -> None: ...

    def failed(self, text: Text, error: Exception) -> None: ...


@dataclass(eq=False)
class Group:
    batch: Batch
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
            if group.texts and key in self.groups:
                together.setdefault((id(group.batch.model), group.texts[0].trial), []).append(key)
            else:
                self.groups.pop(key, None)
        for keys in together.values():
            self.step(keys)

    def admit(self, waiting: Waiting) -> Iterator[Text]:
        """Remove the texts from the queue for which there is room, in turn.

        To read the sources of a few texts takes nearly as long as a step, so that a few texts wait for others, for a
        few turns.
        """
        load, n_read = Load(self.room, self), 0
        n_joining = min(len(waiting), self.room.rows - load.n_rows)
        self.patience = self.patience - 1 if len(waiting) else PATIENCE
        waits = n_joining < load.n_rows // COMPANY and self.patience > 0
        while n_read <= READ_AT_ONCE and (text := waiting.first()) is not None:
            if text.joins:
                if waits or not load.has_room_for(text):
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
            started = start(texts[0].model, [text.sequences for text in texts])
        except Exception as error:
            self.split(texts, error)
            return
        joining: dict[Hashable, list[int]] = {}
        for row, text in enumerate(texts):
            joining.setdefault(key_of(text), []).append(row)
        for key, rows in joining.items():
            new = [texts[row] for row in rows]
            if key not in self.groups:
                first: Sequences = new[0].sequences
                self.groups[key] = Group(Batch(new[0].model, first.width, first.is_beam, first.eos))
            self.arrange(key, started, new, rows)

    def arrange(self, key: Hashable, started: Any = None, new: Sequence[Text] = (), rows: Sequence[int] = ()) -> None:
        """Let texts leave a group, and new ones join it: rows `rows` of the state `started`."""
        group = self.groups[key]
        if not group.free and not new:
            return
        try:
            order = group.batch.arrange(group.free, started, [text.sequences for text in new], rows)
        except Exception as error:  # such as a lack of memory
            del self.groups[key]
            self.split([*group, *new], error)
            return
        both = [*group.texts, *new]
        group.texts, group.free = [both[i] for i in order], set()

    def step(self, keys: list[Hashable]) -> None:
        """Make a step of groups of the same model."""
        groups = [self.groups[key] for key in keys]
        try:
            progress = step_together([group.batch for group in groups])
        except Exception as error:
            for key in keys:
                del self.groups[key]
            self.split([text for group in groups for text in group], error)
            return
        for group, rows in zip(groups, progress):
            for row, (text, new) in enumerate(zip(group.texts, rows)):
                stopped = self.listener.heard(text, new, partial(group.batch.top, row, text.work.top))
                if new.is_done or group.batch.stop(row, stopped):
                    group.free.add(row)
                    self.listener.finished(text, group.batch.results(row))

    def split(self, texts: list[Text], error: Exception) -> None:
        """Let the texts of a step that raised an error start again in two halves, or fail if there is only one."""
        if len(texts) < 2:
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
        for rest in (self.groups, self.joining, self.again):
            rest.clear()
        return texts


def key_of(text: Text) -> Hashable:
    sequences, size = text.sequences, 0
    while len(sequences.source) > SMALL_SOURCE * 4**size:
        size += 1
    return id(text.model), sequences.width, sequences.is_beam, sequences.eos, size, text.trial


def is_together(shortest: Text, longest: Text, n: int) -> bool:
    """Whether n texts, sorted by the length of their source, are read in one pass."""
    size = len(longest.sequences.source)
    return (
        shortest.model is longest.model
        and shortest.trial == longest.trial
        and n * size <= READ_AT_ONCE
        and size <= 2 * len(shortest.sequences.source) + 8  # a pass costs more than a little padding
    )

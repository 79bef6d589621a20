"""The state of a decoder whose sentences start and end at different times, in buffers that are written in place.

The growing state (cache.py) belongs to sentences that start together. Here, a sentence that ends leaves its row to
another one, and nothing else moves:

    rows    the first n are in use       `arrange` puts new sentences, or the last rows, into the rows that are free
    slots   one per cached token         a token takes any slot that no hypothesis of its sentence sees any more

The hypotheses of a beam search die out, and their slots are used again: W hypotheses of T tokens need a few more than
T slots, where the growing state has W·T. A sentence may have fewer than W hypotheses (Live).

Models read views of the rows and slots in use, by the same attributes as in `DecodeState` and `RecurrentState`, so no
model knows which state it reads.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any
from weakref import ref

import numpy as np
import torch
from torch import Tensor

from clearformer.layers.cache import DecodeState, KeyValues, RecurrentState
from clearformer.layers.masks import Ancestors, Mask

MULTIPLE = 8  # buffers have multiples of 8 rows and slots


class Order:
    """The next contents of the rows: row i gets the old row order[i] or, from n on, the new sentence order[i] − n.

    `chosen` are the indices of the new sentences in a state that has just started, which may have more. Rows that stay
    where they are cost nothing.
    """

    def __init__(self, order: Sequence[int], n: int, chosen: Sequence[int], device: torch.device) -> None:
        self.n, self.order, self.chosen = len(order), indices(order, device), indices(chosen, device)
        self.places = order, n, chosen, device

    @cached_property
    def moved(self) -> tuple[Tensor, Tensor] | None:
        """Where old rows go, and where they are."""
        order, n, _, device = self.places
        return pair([(row, old) for row, old in enumerate(order) if row != old < n], device)

    @cached_property
    def joined(self) -> tuple[Tensor, Tensor] | None:
        """Where new sentences go, and where they are in the state that has just started."""
        order, n, chosen, device = self.places
        return pair([(row, chosen[old - n]) for row, old in enumerate(order) if old >= n], device)

    def apply(self, old: Tensor, new: Tensor | None, dim: int = 0) -> Tensor:
        """Return a small tensor with the next contents, from its old rows and those of the started state."""
        if new is not None:
            old = torch.cat([old, new.index_select(dim, self.chosen)], dim)
        return old.index_select(dim, self.order)


def indices(rows: Sequence[Any], device: torch.device) -> Tensor:
    return torch.from_numpy(np.array(rows, dtype=np.int64)).to(device)  # a quarter of the time of torch.tensor


def pair(rows: Sequence[tuple[int, int]], device: torch.device) -> tuple[Tensor, Tensor] | None:
    if not rows:
        return None
    to, origin = indices(rows, device).unbind(1)
    return to, origin


class Live:
    """Which of the W hypotheses of each row exist: the first widths[b]. `pick` and `spread` translate between them."""

    def __init__(self, widths: Tensor, width: int) -> None:
        self.exists = torch.arange(width, device=widths.device) < widths[:, None]  # (B, W)
        self.index = self.exists.flatten().nonzero()[:, 0]  # (L,)
        self.place = self.exists.flatten().cumsum(0) - 1  # (BW,): of the last one that exists

    def pick(self, x: Tensor) -> Tensor:
        """Return the hypotheses that exist: (BW, …) -> (L, …)."""
        return x.index_select(0, self.index)

    def spread(self, x: Tensor) -> Tensor:
        """Return all hypotheses, those that do not exist as copies of others: (L, …) -> (BW, …)."""
        return x.index_select(0, self.place)


class Rows:
    """A tensor with a row per sentence in a buffer with room for more; `dim` is the dimension of slots or positions.

    The buffer is allocated when it is first written, and grows to twice the rows or half as many slots again. What is
    not written is zero: anything else might not be finite, and 0 · NaN is NaN, also behind a mask.
    """

    def __init__(self, dim: int) -> None:
        self.dim, self.room = dim, (0, 0)
        self.buffer: Tensor | None = None

    def reserve(self, n: int, n_slots: int, like: Tensor) -> Tensor:
        """Return a buffer with room for n rows of n_slots slots; otherwise its shape is that of `like`."""
        if self.buffer is None or n > self.room[0] or n_slots > self.room[1]:
            rows, slots = self.room
            shape = list(like.shape)
            shape[0] = rows if n <= rows else rounded(max(n, 2 * rows))
            shape[self.dim] = slots if n_slots <= slots else rounded(max(n_slots, slots + slots // 2))
            buffer = like.new_zeros(shape)
            if self.buffer is not None:
                buffer[:rows].narrow(self.dim, 0, slots).copy_(self.buffer)
            self.buffer, self.room = buffer, (shape[0], shape[self.dim])
        return self.buffer

    def per_slot(self) -> float:
        """Return the bytes of a slot in one row."""
        return 0.0 if self.buffer is None else self.buffer.nbytes / max(1, self.room[0] * self.room[1])

    def view(self, n: int, n_slots: int) -> Tensor:
        assert self.buffer is not None
        return self.buffer[:n].narrow(self.dim, 0, n_slots)

    def arrange(self, order: Order, n_slots: int, new: Tensor | None) -> None:
        """Move rows, of which n_slots slots are in use, and write new ones: new (n, …) of the started state.

        `new` is None if the new sentences have nothing yet. Their rows are empty all the same.
        """
        if order.moved is not None and self.buffer is not None:
            to, origin = order.moved
            used = self.buffer.narrow(self.dim, 0, n_slots)
            used.index_copy_(0, to, used.index_select(0, origin))
            rest = self.buffer.narrow(self.dim, n_slots, self.room[1] - n_slots)
            rest.index_fill_(0, to, 0)  # slots that other sentences may need again
        if order.joined is None:
            return
        at, chosen = order.joined
        if new is not None:
            buffer = self.reserve(order.n, new.size(self.dim), new)
            buffer.index_fill_(0, at, 0)  # of the sentence before
            buffer.narrow(self.dim, 0, new.size(self.dim)).index_copy_(0, at, new.index_select(0, chosen))
        elif self.buffer is not None:
            self.reserve(order.n, 0, self.buffer).index_fill_(0, at, 0)


class OpenCache:
    """The keys and values of one layer, (B, G, N, K).

    The state has its caches; a cache refers to it weakly, since a cycle would keep the buffers of a state that is no
    longer used until Python looks for cycles.
    """

    def __init__(self, state: "OpenState") -> None:
        self.weak_state, self.k, self.v = ref(state), Rows(2), Rows(2)

    @property
    def state(self) -> "OpenState":
        state = self.weak_state()
        assert state is not None
        return state

    @property
    def length(self) -> int:
        """The number of slots that precede the tokens of a step, if all slots in use are counted."""
        return self.state.n_slots - self.state.width

    def append(self, k: Tensor, v: Tensor) -> KeyValues:
        """Write k (B, G, W, K) and v; returns views of the slots in use. A mask hides those that are free."""
        k, v = (self.state.pick(x.transpose(1, 2).flatten(0, 1)) for x in (k, v))
        return self.append_live(k, v)

    def append_live(self, k: Tensor, v: Tensor) -> KeyValues:
        """The same for k and v (L, G, K) of the hypotheses that exist."""
        return self.write(self.k, k), self.write(self.v, v)

    def write(self, rows: Rows, new: Tensor) -> Tensor:
        state = self.state
        buffer = rows.reserve(state.n, state.n_slots, new[:, :, None])
        buffer.flatten(0, 2).index_copy_(0, state.places(buffer), new.flatten(0, 1))
        return rows.view(state.n, state.n_slots)


class OpenState:
    """The state of a Transformer for n sentences with at most W hypotheses each."""

    def __init__(self, like: DecodeState, width: int) -> None:
        """`like` is a state that has just started, with which the sentences join."""
        device = like.next.device
        self.width, self.n, self.n_slots, self.n_memory = width, 0, 0, 0
        self.next = torch.zeros(0, 1, dtype=torch.long, device=device)  # (B, 1): position of the next token
        self.caches = [OpenCache(self) for _ in like.caches]
        self.positions, self.visible = Rows(1), Rows(2)  # (B, N) and (B, W, N): what `slots` and `paths` show
        self.kept = [(Rows(2), Rows(2)) for _ in like.memory or ()]  # the keys and values of the encoder
        self.kept_keys = Rows(1)  # (B, S): True except at padding
        self.alone = torch.eye(width, dtype=torch.bool, device=device)
        self.columns = torch.zeros(0, width, dtype=torch.long, device=device)  # (B, W): slots of the present tokens
        self.indices: dict[tuple[int, int], Tensor] = {}
        self.live: Live | None = None  # None if all hypotheses exist

    @property
    def n_live(self) -> int:
        """The number of hypotheses that exist, L."""
        return self.n * self.width if self.live is None else len(self.live.index)

    def pick(self, x: Tensor) -> Tensor:
        """Return the hypotheses that exist: (BW, …) -> (L, …)."""
        return x if self.live is None else self.live.pick(x)

    def spread(self, x: Tensor) -> Tensor:
        """Return all hypotheses: (L, …) -> (B, W, …)."""
        return (x if self.live is None else self.live.spread(x)).unflatten(0, (self.n, self.width))

    @property
    def slots(self) -> Tensor:
        """The position of the token in each slot, (B, slots)."""
        return self.positions.view(self.n, self.n_slots)

    @property
    def paths(self) -> Tensor:
        """Which slots each hypothesis sees, (B, W, slots)."""
        return self.visible.view(self.n, self.n_slots)

    @property
    def memory(self) -> list[KeyValues] | None:
        return [(k.view(self.n, self.n_memory), v.view(self.n, self.n_memory)) for k, v in self.kept] or None

    @property
    def memory_keys(self) -> Tensor | None:
        return self.kept_keys.view(self.n, self.n_memory) if self.kept else None

    def grow(self, n_rows: int, width: int) -> tuple[Tensor, Mask]:
        """Find a slot for the next token of each hypothesis; returns the tokens' positions (B, W) and mask."""
        used = self.paths.any(1)  # (B, slots)
        n_slots = max(length(used), int(used.sum(1).max()) + width)  # every row has W free ones
        if n_slots > self.n_slots:
            used = torch.nn.functional.pad(used, (0, n_slots - self.n_slots))
        used, self.n_slots = used[:, :n_slots], n_slots
        free_first = torch.arange(n_slots, device=used.device) + n_slots * used
        self.columns = free_first.topk(width, dim=1, largest=False).values
        self.indices.clear()
        self.positions.reserve(self.n, n_slots, self.next)
        self.visible.reserve(self.n, n_slots, self.alone[None])
        where, paths = self.next.expand(-1, width), self.paths
        self.slots.scatter_(1, self.columns, where)
        paths.scatter_(2, self.columns[:, None].expand(-1, width, -1), self.alone.expand(n_rows, -1, -1))
        self.next = self.next + 1
        return where, Ancestors(paths)

    def places(self, buffer: Tensor) -> Tensor:
        """Return where the present tokens are in a buffer (B, G, N, K), seen as a list of vectors: (L·G,)."""
        n_heads, n_slots = buffer.shape[1:3]
        if (n_heads, n_slots) not in self.indices:
            heads = torch.arange(self.n * n_heads, device=buffer.device).view(self.n, 1, n_heads)
            places = heads * n_slots + self.columns[:, :, None]  # (B, W, G)
            self.indices[n_heads, n_slots] = self.pick(places.flatten(0, 1)).flatten()
        return self.indices[n_heads, n_slots]

    def sizes(self) -> tuple[float, float, float]:
        """Return the bytes per slot, per position of the source, and per hypothesis."""
        slot = sum(rows.per_slot() for cache in self.caches for rows in (cache.k, cache.v))
        return slot, sum(rows.per_slot() for pair in self.kept for rows in pair), 0.0

    def reorder(self, parents: Tensor) -> None:
        """Let hypothesis w of sentence b continue hypothesis parents[b, w]; parents (B, W)."""
        paths = self.paths
        paths.copy_(paths.gather(1, parents[:, :, None].expand(-1, -1, paths.size(2))))

    def arrange(self, order: Order, started: DecodeState | None) -> None:
        """Let sentences leave, move and join; `started` has the new ones, of which nothing has been decoded yet."""
        trunk = None if started is None else Trunk(started)
        self.next = order.apply(self.next, None if trunk is None else trunk.next)
        slots = [self.positions, self.visible, *(rows for cache in self.caches for rows in (cache.k, cache.v))]
        memory = [self.kept_keys, *(rows for pair in self.kept for rows in pair)]
        new = [None] * len(slots) if trunk is None else trunk.slots(self.width)
        kept = [None] * len(memory) if trunk is None else trunk.memory()
        for rows, tensor in zip(slots, new):
            rows.arrange(order, self.n_slots, tensor)
        for rows, tensor in zip(memory, kept):
            rows.arrange(order, self.n_memory, tensor)
        self.n = order.n
        self.n_slots = max(self.n_slots, 0 if new[0] is None else new[0].size(1))
        self.n_memory = max(self.n_memory, 0 if kept[0] is None else kept[0].size(1))
        if self.kept and self.n:
            self.n_memory = length(self.kept_keys.view(self.n, self.n_memory))


class Trunk:
    """What a state that has just started has of its n sentences, with a row for each in every tensor.

    At most `most` positions of the sources are taken: padding may follow, where longer sources were read, too.
    """

    def __init__(self, state: DecodeState, most: int | None = None) -> None:
        self.state, self.most, self.n_read = state, most, state.slots[:, :most].size(1)
        tensors = [state.next, state.paths, state.memory and state.memory[0][0], self.n_read and state.caches[0].k]
        self.n = max(len(tensor) for tensor in tensors if isinstance(tensor, Tensor))
        self.next = state.next.expand(self.n, -1)

    def slots(self, width: int) -> list[Tensor | None]:
        """Return the positions (n, S) and paths (n, W, S) of the tokens that were read, and their keys and values."""
        paths, caches = self.state.paths, self.state.caches
        paths = self.all_true(1, self.n_read) if paths is None else paths[:, :, : self.n_read]
        kv = [x[:, :, : self.n_read] if self.n_read else None for cache in caches for x in (cache.k, cache.v)]
        return [self.state.slots[:, : self.n_read].expand(self.n, -1), paths.expand(-1, width, -1), *kv]

    def memory(self) -> list[Tensor | None]:
        """Return which positions of the encoder's memory are tokens, (n, S), and its keys and values."""
        memory, keys = self.state.memory, self.state.memory_keys
        if memory is None:
            return [None]
        keys = self.all_true(memory[0][0].size(2)) if keys is None else keys
        return [keys[:, : self.most], *(x[:, :, : self.most] for pair in memory for x in pair)]

    def all_true(self, *shape: int) -> Tensor:
        return torch.ones(self.n, *shape, dtype=torch.bool, device=self.next.device)


class OpenRecurrentState:
    """The state of a recurrent network for n sentences with W hypotheses each: vectors (…, B, W, D), and memory."""

    live: Live | None = None

    def __init__(self, like: RecurrentState, width: int) -> None:
        self.width, self.n, self.n_memory = width, 0, 0
        self.vectors = self.several(like.vectors).narrow(-3, 0, 0)
        self.kept = [None if part is None else Rows(1) for part in like.memory]

    def several(self, vectors: Tensor) -> Tensor:
        return vectors.expand(*vectors.shape[:-2], self.width, -1)

    @property
    def memory(self) -> tuple[Tensor | None, ...]:
        return tuple(None if rows is None else rows.view(self.n, self.n_memory) for rows in self.kept)

    def expanded(self, width: int) -> Tensor:
        return self.vectors

    def sizes(self) -> tuple[float, float, float]:
        """Return the bytes per slot, of which there are none, per position of the source, and per hypothesis."""
        per_position = sum(rows.per_slot() for rows in self.kept if rows is not None)
        return 0.0, per_position, self.vectors.nbytes / max(1, self.n * self.width)

    def reorder(self, parents: Tensor) -> None:
        """Let hypothesis w of sentence b continue hypothesis parents[b, w]; parents (B, W)."""
        RecurrentState.reorder(self, parents)  # type: ignore[arg-type]

    def arrange(self, order: Order, started: RecurrentState | None) -> None:
        """Let sentences leave, move and join; `started` has the new ones, of which nothing has been decoded yet."""
        self.vectors = order.apply(self.vectors, None if started is None else self.several(started.vectors), -3)
        given = [None] * len(self.kept) if started is None else list(started.memory)
        for rows, new in zip(self.kept, given):
            if rows is not None:
                rows.arrange(order, self.n_memory, new)
        self.n, self.n_memory = order.n, max([self.n_memory, *(new.size(1) for new in given if new is not None)])


OpenStates = OpenState | OpenRecurrentState


def opened(like: DecodeState | RecurrentState, width: int) -> OpenStates:
    """Return an empty state for sentences with W hypotheses each, which join with states such as `like`."""
    return OpenState(like, width) if isinstance(like, DecodeState) else OpenRecurrentState(like, width)


def length(flags: Tensor) -> int:
    """Return the number of columns of flags (B, N) up to the last one with a flag."""
    columns = flags.any(0).nonzero()
    return int(columns[-1]) + 1 if len(columns) else 0


def rounded(n: int) -> int:
    return -(-n // MULTIPLE) * MULTIPLE

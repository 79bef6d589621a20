"""Who may look where, as a description. True always means "may look".

    Causal()            s ≤ t                  a position sees itself and the past
    Padding(keys)       keys[b, s]             nobody sees padding
    Window(width)       |t − s| < width        only the neighbourhood
    Documents(ids)      ids[b, t] = ids[b, s]  packed documents do not see each other
    Prefix(keys)        s ≤ t or keys[b, s]    both ways inside the prefix, causal after it
    Ancestors(table)    table[b, t, s]         each branch of a search tree sees its own path

Rules are joined by `&` into a Mask, which stays a description until an attention core lowers it to a flag, a tensor
or a block mask. A rule is a predicate on index tensors, the form FlexAttention takes as well.
"""

from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor


class Mask:
    """A rule, or several that must all agree."""

    def allow(self, b: Tensor, t: Tensor, s: Tensor) -> Tensor:
        """May query t of row b look at key s? Index tensors broadcastable to (B, T, S) -> bool."""
        raise NotImplementedError

    def tensors(self) -> list[Tensor]:
        return [value for value in vars(self).values() if isinstance(value, Tensor)]

    @property
    def is_only_causal(self) -> bool:
        return False

    def __and__(self, other: "Mask | None") -> "Mask":
        return self if other is None else All((self, other))

    def dense(self, T: int, S: int, device: torch.device) -> Tensor:
        """The mask as bool (B, 1, T, S), B = 1 when no rule depends on the row.

        `device` is that of the queries, where the rules' own tensors must be too: a rule may have none that tells.
        """
        held = self.tensors()
        n_rows = held[0].size(0) if held else 1
        b = torch.arange(n_rows, device=device)[:, None, None]
        t = torch.arange(T, device=device)[None, :, None]
        s = torch.arange(S, device=device)[None, None, :]
        return self.allow(b, t, s).expand(n_rows, T, S)[:, None]  # (B, 1, T, S)


@dataclass(frozen=True, eq=False)
class All(Mask):
    rules: tuple[Mask, ...]

    def allow(self, b: Tensor, t: Tensor, s: Tensor) -> Tensor:
        return reduce(torch.logical_and, (rule.allow(b, t, s) for rule in self.rules))

    def tensors(self) -> list[Tensor]:
        return [tensor for rule in self.rules for tensor in rule.tensors()]


@dataclass(frozen=True, eq=False)
class Causal(Mask):
    @property
    def is_only_causal(self) -> bool:
        return True

    def allow(self, b: Tensor, t: Tensor, s: Tensor) -> Tensor:
        return s <= t


@dataclass(frozen=True, eq=False)
class Padding(Mask):
    keys: Tensor  # (B, S) bool, True at real tokens

    def allow(self, b: Tensor, t: Tensor, s: Tensor) -> Tensor:
        return self.keys[b, s]


@dataclass(frozen=True, eq=False)
class Window(Mask):
    width: int

    def allow(self, b: Tensor, t: Tensor, s: Tensor) -> Tensor:
        return (t - s).abs() < self.width


@dataclass(frozen=True, eq=False)
class Documents(Mask):
    ids: Tensor  # (B, S) integers

    def allow(self, b: Tensor, t: Tensor, s: Tensor) -> Tensor:
        return self.ids[b, t] == self.ids[b, s]


@dataclass(frozen=True, eq=False)
class Prefix(Mask):
    keys: Tensor  # (B, S) bool, True in the prefix, or in that of each document

    def allow(self, b: Tensor, t: Tensor, s: Tensor) -> Tensor:
        return (s <= t) | self.keys[b, s]


@dataclass(frozen=True, eq=False)
class Ancestors(Mask):
    table: Tensor  # (B, T, S) bool

    def allow(self, b: Tensor, t: Tensor, s: Tensor) -> Tensor:
        return self.table[b, t, s]

    def dense(self, T: int, S: int, device: torch.device) -> Tensor:
        return self.table[:, None]


def within(size: int, lengths: Tensor) -> Tensor:
    """Rows of these lengths (B,), padded to one size: True at what is real, as Padding takes it, (B, size)."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]

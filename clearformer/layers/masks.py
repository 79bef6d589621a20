"""Attention masks as rules: which query t may attend to which key s. True always means "may attend".

    Causal()            s ≤ t                  a position sees itself and the past
    Padding(keys)       keys[b, s]             padding is never seen
    Window(width)       |t − s| < width        a position sees its neighbourhood
    Documents(ids)      ids[b, t] = ids[b, s]  packed documents do not see each other
    PrefixLM(keys)      s ≤ t or keys[b, s]    bidirectional inside the context, causal after it
    Ancestors(table)    table[b, t, s]         each hypothesis of a beam search sees its own path

`&` combines rules into one Mask. A Mask is only a description until an attention core lowers it to a flag, a tensor or
a block mask. A rule is a predicate on index tensors, the form that FlexAttention uses as well.
"""

from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor


class Mask:
    """A rule, or several rules that must all hold."""

    def allow(self, b: Tensor, t: Tensor, s: Tensor) -> Tensor:
        """Whether query t of row b may attend to key s, for index tensors that are broadcastable to (B, T, S)."""
        raise NotImplementedError

    def tensors(self) -> list[Tensor]:
        return [value for value in vars(self).values() if isinstance(value, Tensor)]

    @property
    def is_only_causal(self) -> bool:
        return False

    def __and__(self, other: "Mask | None") -> "Mask":
        return self if other is None else All((self, other))

    def dense(self, T: int, S: int, device: torch.device) -> Tensor:
        """Return the mask as a bool tensor (B, 1, T, S), with B = 1 if no rule depends on the row.

        `device` is the device of the queries and of the rules' tensors. It is passed because rules may have no tensors.
        """
        tensors = self.tensors()
        n_rows = tensors[0].size(0) if tensors else 1
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

    def dense(self, T: int, S: int, device: torch.device) -> Tensor:
        return self.keys[:, None, None, :S].expand(-1, -1, T, -1)  # a view: the rule does not depend on the query


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
class PrefixLM(Mask):
    keys: Tensor  # (B, S) bool, True in the context of the row, or of each of its documents

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
    """Return the keys for `Padding`: a bool tensor (B, size), True in the first lengths[b] positions of row b."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]

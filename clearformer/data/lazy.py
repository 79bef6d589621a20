"""Sequences whose items are computed when they are asked for, so that an epoch is not planned as a whole."""

from collections.abc import Callable, Sequence
from typing import Any, overload


class Lazy(Sequence[Any]):
    """A sequence of n items: `item(i)` computes the i-th."""

    def __init__(self, n: int, item: Callable[[int], Any]) -> None:
        self.n, self.item = n, item

    def __len__(self) -> int:
        return self.n

    @overload
    def __getitem__(self, i: int) -> Any: ...
    @overload
    def __getitem__(self, i: slice) -> list[Any]: ...
    def __getitem__(self, i: int | slice) -> Any:
        if isinstance(i, slice):
            return [self.item(j) for j in range(*i.indices(self.n))]
        if not -self.n <= i < self.n:
            raise IndexError(i)
        return self.item(i % self.n)


def in_lazy_groups(batches: Sequence[Any], group: int) -> Lazy:
    """Divide batches into groups of `group`; an incomplete last group is filled with the first batches."""
    n = len(batches)
    return Lazy(-(-n // group), lambda i: [batches[j % n] for j in range(i * group, (i + 1) * group)])

from dataclasses import dataclass

import pytest
import torch

from clearformer.training.distributed import World
from clearformer.training.feed import feed

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Card:
    """A batch that knows only where it comes from."""

    epoch: int
    number: int

    def to(self, device, non_blocking=False):
        return self


class Deck:
    """Eleven micro-batches an epoch, in steps of `group`; the last step is short of some."""

    def __init__(self, group: int) -> None:
        self.group = group

    def count(self, epoch):
        return -(-11 // self.group)

    def load(self, epoch, position, world):
        cards = [Card(epoch, n % 11) for n in range(position * self.group, (position + 1) * self.group)]
        return world.share(cards), self.group


@dataclass
class At:
    epoch: int = 0
    position: int = 0


def test_place_moves_with_what_is_handed_out():
    at, seen = At(), []
    for batches, _ in feed(Deck(1), at, 25, World(), CPU):
        assert batches == [Card(at.epoch, at.position - 1)]
        seen += batches
    assert seen == [Card(n // 11, n % 11) for n in range(25)]


@pytest.mark.parametrize("stop", [1, 5, 11, 12, 13])
def test_goes_on_where_it_stopped(stop):
    at = At()
    first = [batches for batches, _ in feed(Deck(2), at, stop, World(), CPU)]
    rest = [batches for batches, _ in feed(Deck(2), At(at.epoch, at.position), 17 - stop, World(), CPU)]
    assert first + rest == [batches for batches, _ in feed(Deck(2), At(), 17, World(), CPU)]


def test_abandoned_midway_knows_what_was_trained_on():
    at = At()
    for n, _ in enumerate(feed(Deck(1), at, 25, World(), CPU), 1):
        if n == 4:
            break
    assert (at.epoch, at.position) == (0, 4)


def test_position_means_the_same_to_another_number_of_ranks():
    """Six micro-batches on one rank, then two ranks: together they see the rest of the epoch, nothing else."""
    at = At()
    list(feed(Deck(1), at, 6, World(), CPU))
    shares = [feed(Deck(2), At(at.epoch, at.position), 2, World(rank, 2), CPU) for rank in (0, 1)]
    assert [[card.number for card in batches] for share in shares for batches, _ in share] == [[6], [8], [7], [9]]


def test_no_steps_left_is_no_steps():
    assert list(feed(Deck(1), At(), -3, World(), CPU)) == []

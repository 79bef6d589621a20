from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import Tensor

from clearformer.data.batch import Tensors
from clearformer.data.collate import in_groups
from clearformer.errors import ConfigError
from clearformer.training.distributed import World
from clearformer.training.feed import Steps, WholeEpochs, feed

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
        return world.select(cards), self.group


@dataclass
class At:
    epoch: int = 0
    position: int = 0
    left_out: list[list[int]] = field(default_factory=list)


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


@dataclass(frozen=True)
class Draw(Tensors):
    """A batch that knows what it was built from."""

    rows: Tensor
    number: int
    n_tokens: int


class Counted:
    """Thirteen rows in micro-batches of three; row r has r targets."""

    is_drawn = False
    seed = 7

    def __init__(self) -> None:
        self.planned: list[int] = []
        self.built: list[tuple[int, int]] = []

    def steps(self, epoch, group):
        self.planned.append(epoch)
        order = np.random.default_rng((self.seed, epoch)).permutation(13)
        return in_groups(np.split(order, range(3, 13, 3)), group)

    def batch(self, rows, key):
        self.built.append(key)
        return Draw(torch.from_numpy(rows), key[1], self.count(rows))

    def count(self, rows):
        return int(rows.sum())


class Masked(Counted):
    """How many targets there are is drawn with the batch."""

    is_drawn = True

    def batch(self, rows, key):
        self.built.append(key)
        is_labelled = np.random.default_rng((self.seed, *key)).random(len(rows)) < 0.5
        return Draw(torch.from_numpy(rows[is_labelled]), key[1], int(is_labelled.sum()))

    def count(self, rows):
        raise AssertionError("asked before it was drawn")


def contents(batches):
    return [(batch.number, batch.rows.tolist()) for batch in batches]


@pytest.mark.parametrize("kind", [Counted, Masked])
def test_two_ranks_share_what_one_rank_has(kind):
    """5 micro-batches in steps of 4: the second step is filled up, and its last numbers pass the end of the epoch."""
    whole = Steps(kind(), 4)
    assert whole.count(0) == 2
    for epoch, position in [(0, 0), (0, 1), (1, 0), (1, 1)]:
        batches, count = whole.load(epoch, position, World())
        halves = [Steps(kind(), 4).load(epoch, position, World(rank, 2)) for rank in (0, 1)]
        assert [batch.number for batch in batches] == list(range(4 * position, 4 * position + 4))
        assert [n for _, n in halves] == [count, count]
        assert count == max(1, sum(batch.n_tokens for batch in batches))
        assert contents(batches[0::2]) == contents(halves[0][0])
        assert contents(batches[1::2]) == contents(halves[1][0])


@pytest.mark.parametrize(("kind", "built"), [(Counted, [1, 3]), (Masked, [0, 1, 2, 3])])
def test_a_rank_builds_its_own_batches_unless_they_are_drawn(kind, built):
    split = kind()
    Steps(split, 4).load(2, 0, World(1, 2))
    assert split.built == [(2, number) for number in built]


def test_what_is_drawn_depends_on_epoch_and_number_not_on_the_group():
    """On one rank by steps of 1, or by steps of 2: the same draws."""
    ones, twos = Steps(Masked(), 1), Steps(Masked(), 2)
    singles = [batch for position in range(4) for batch in ones.load(3, position, World())[0]]
    pairs = [batch for position in range(2) for batch in twos.load(3, position, World())[0]]
    assert contents(singles) == contents(pairs)
    assert contents(singles) != contents([b for p in range(4) for b in ones.load(4, p, World())[0]])


@pytest.mark.parametrize("is_drawn", [False, True])
def test_a_step_without_targets_counts_one(is_drawn):
    """A loss of 0 is divided by it."""

    class Nothing(Counted):
        def batch(self, rows, key):
            return Draw(torch.from_numpy(rows), key[1], 0)

        def count(self, rows):
            return 0

    split = Nothing()
    split.is_drawn = is_drawn
    assert Steps(split, 2).load(0, 0, World())[1] == 1


def test_two_epochs_are_planned_once_each():
    split = Counted()
    steps = Steps(split, 2)
    for epoch in (0, 1, 0, 1, 1, 0):
        steps.load(epoch, 0, World())
        steps.count(epoch)
    assert split.planned == [0, 1]
    steps.count(2)
    steps.count(1)
    assert split.planned == [0, 1, 2, 1]


@pytest.mark.parametrize("kind", [Counted, Masked])
def test_a_split_is_fed_to_the_end_of_its_epochs(kind):
    at = At()
    fed = [contents(batches) for batches, _ in feed(Steps(kind(), 2), at, 4, World(), CPU)]
    steps = Steps(kind(), 2)
    assert fed == [contents(steps.load(*place, World())[0]) for place in [(0, 0), (0, 1), (0, 2), (1, 0)]]
    assert (at.epoch, at.position) == (1, 2)


class Numbers:
    """Seven micro-batches an epoch, of 1 to 7 targets."""

    is_drawn = False

    def steps(self, epoch, group):
        return in_groups([np.array([n]) for n in range(1, 8)], group)

    def batch(self, rows, key):
        return Card(key[0], int(rows[0]))

    def count(self, rows):
        return int(rows[0])


def test_a_step_of_a_whole_epoch_has_every_micro_batch_once():
    at, source = At(), WholeEpochs(Numbers())
    for epoch, (batches, count) in enumerate(feed(source, at, 3, World(), CPU)):
        assert batches == [Card(epoch, n) for n in range(1, 8)]
        assert (count, source.count(epoch)) == (28, 1)
    [(batches, _)] = feed(source, At(at.epoch, at.position), 1, World(), CPU)
    assert batches[0].epoch == 3, "it goes on with the next epoch"


def test_ranks_share_the_micro_batches_of_an_epoch():
    shares = [WholeEpochs(Numbers()).load(0, 0, World(rank, 3)) for rank in range(3)]
    assert sorted(card.number for batches, _ in shares for card in batches) == list(range(1, 8))
    assert {count for _, count in shares} == {28}
    with pytest.raises(ConfigError, match="an epoch has 7 micro-batches for 8 processes"):
        WholeEpochs(Numbers()).load(0, 0, World(0, 8))

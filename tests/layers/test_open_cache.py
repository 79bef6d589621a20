"""Rows of a buffer are used again, and what a row shows is what was written since its sentence joined."""

import torch

from clearformer.layers.open_cache import Order, Rows

SLOTS, K = 5, 3


def rows_of_ones(n: int) -> Rows:
    rows = Rows(1)
    rows.arrange(Order([*range(n)], 0, [*range(n)], torch.device("cpu")), 0, torch.ones(n, SLOTS, K))
    return rows


def test_a_row_that_moves_leaves_nothing_of_the_sentence_before() -> None:
    """Its slots after those in use are shown again when another sentence needs more slots."""
    rows = rows_of_ones(2)
    rows.view(2, SLOTS)[0] = torch.nan
    rows.arrange(Order([1], 2, [], torch.device("cpu")), 2, None)  # two slots are in use
    assert rows.view(1, SLOTS)[0].tolist() == [[1.0] * K] * 2 + [[0.0] * K] * (SLOTS - 2)


def test_the_row_of_a_sentence_that_has_nothing_yet_is_empty() -> None:
    rows = rows_of_ones(2)
    rows.arrange(Order([2, 1, 3], 2, [0, 1], torch.device("cpu")), SLOTS, None)
    assert not rows.view(3, SLOTS)[[0, 2]].any()
    assert rows.view(3, SLOTS)[1].all()

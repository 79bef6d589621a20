import pytest
import torch

from clearformer.claims.positions import FROM, SHIFT, D, T, look
from clearformer.layers.positions import frequencies

NUMBERS = look(seed=3)


def test_likeness_of_sinusoids_by_hand():
    """Σ cos ω_i k over D/2 pairs of length 1 each, from wherever."""
    reach = torch.arange(T - max(FROM), dtype=torch.float64)
    by_hand = torch.cos(frequencies(D)[:, None] * reach).mean(dim=0)
    for p in FROM:
        torch.testing.assert_close(torch.tensor(NUMBERS["likeness"]["sinusoidal"][str(p)]), by_hand.float())


def test_rotary_sees_the_distance_alone_and_untrained_vectors_do_not():
    turned, learned = (list(NUMBERS["likeness"][name].values()) for name in list(NUMBERS["likeness"])[1:])
    assert turned[0] == pytest.approx(turned[1])
    assert max(map(abs, turned[0][1:])) > 0.5
    assert learned[0][1:] != pytest.approx(learned[1][1:], abs=0.1)


def test_the_rotation_is_the_one_that_is_drawn():
    """Each arrow of the circle turns by ω k, clockwise in the plane of (sin, cos)."""
    circle = torch.tensor(NUMBERS["circle"])
    pair = 2 * NUMBERS["pair"]
    block = torch.tensor(NUMBERS["shift_matrix"])[pair : pair + 2, pair : pair + 2]
    torch.testing.assert_close(circle[SHIFT:], circle[:-SHIFT] @ block.T)
    assert NUMBERS["shift_error"] < 1e-12


def test_biases():
    assert NUMBERS["alibi"][0][:3] == [0, -0.5, -1.0]  # the slope of the first of 8 heads is 1/2
    assert NUMBERS["t5_bucket"][T - 1] == 0  # a token to itself
    assert len(set(NUMBERS["t5_bucket"])) <= 32

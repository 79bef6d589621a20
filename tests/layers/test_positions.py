from math import cos, pi, sin

import pytest
import torch
from torch import Tensor

from clearformer.layers.positions import (
    Alibi,
    Learned,
    PositionConfig,
    Positions,
    Relative,
    Rotary,
    Sinusoidal,
    alibi_slopes,
    frequencies,
    rotate,
    shift_matrix,
    sinusoids,
)

B, T, S, H, K = 2, 3, 5, 7, 22


def exactly(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected.to(got), atol=1e-12, rtol=0)


# Sinusoids


def test_the_table_by_hand() -> None:
    """D = 4: position p is sin p, cos p, sin p/100, cos p/100.

    The notes slip in three ways: 1000 for 10000; 10000^((2i+1)/D) under the cosine, which would break the pairs that
    the shift theorem needs; and exponents that begin at 2/D instead of 0. The paper's are 10000^(2i/D) for both.
    """
    by_hand = [[sin(p), cos(p), sin(p / 100), cos(p / 100)] for p in range(3)]
    exactly(sinusoids(3, 4), torch.tensor(by_hand, dtype=torch.float64))
    assert by_hand[0] == [0, 1, 0, 1]


def test_512_features_are_256_waves() -> None:
    """Not 264, as the notes have it. The fastest turns in 2π tokens; the slowest almost in 2π · 10000."""
    waves = 2 * pi / frequencies(512)
    assert len(waves) == 256
    assert waves[0].item() == pytest.approx(2 * pi)
    assert waves[-1].item() == pytest.approx(2 * pi * 10000 ** (510 / 512))


@pytest.mark.parametrize("k", [0, 1, 13, -7])
def test_shifting_is_linear(k: int) -> None:
    """PE(p + k) = T_k PE(p), one T_k for all positions."""
    table = sinusoids(211, 22)
    start, stop = max(0, -k), 211 - max(0, k)
    exactly(table[start:stop] @ shift_matrix(k, 22).T, table[start + k : stop + k])


def test_shifts_compose_like_distances() -> None:
    exactly(shift_matrix(3, 10) @ shift_matrix(5, 10), shift_matrix(8, 10))
    exactly(shift_matrix(11, 10).T, shift_matrix(-11, 10))  # a rotation: its transpose takes it back


def test_halves_are_a_permutation() -> None:
    order = [*range(0, 22, 2), *range(1, 22, 2)]
    assert sinusoids(31, 22, "halves").equal(sinusoids(31, 22)[:, order])


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_an_odd_width_ends_with_a_sine(layout: str) -> None:
    table = sinusoids(T, 5, layout)
    last = table[:, 4] if layout == "interleaved" else table[:, 2]
    exactly(last, (torch.arange(T).double() / 10000**0.8).sin())
    assert table.shape == (T, 5)


def test_nearness_is_told_by_distance_alone() -> None:
    """PE(p)·PE(p + k) = Σ cos ω_i k: the same for every p, and the largest for k = 0."""
    table = sinusoids(41, 22)
    likeness = table @ table.T
    for k in range(5):
        exactly(likeness.diagonal(k), (frequencies(22) * k).cos().sum().expand(41 - k))
    assert (likeness <= 11 + 1e-12).all()


# Every encoding as a Positions

KINDS = ["sinusoidal", "learned", "rotary", "alibi", "t5", "none"]
CLASSES = [Sinusoidal, Learned, Rotary, Alibi, Relative, Positions]


def build(kind: str, is_causal: bool = False) -> Positions:
    torch.manual_seed(0)
    return PositionConfig(kind=kind).build(H * K, H, K, 29, is_causal)


@pytest.mark.parametrize(("kind", "expected"), list(zip(KINDS, CLASSES)))
def test_each_kind_uses_its_own_hook(kind: str, expected: type) -> None:
    positions, where = build(kind), torch.arange(T)
    assert type(positions) is expected
    x = torch.randn(B, T, H * K)
    assert positions.add(x, where).equal(x) == (kind not in ("sinusoidal", "learned"))
    assert (positions.rotation(where) is None) == (kind != "rotary")
    assert (positions.bias(where, where) is None) == (kind not in ("alibi", "t5"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_position_for_each_row_is_a_position(kind: str) -> None:
    """(B, T) positions, rows alike, tell the same as (T,)."""
    positions, x, q = build(kind), torch.randn(B, T, H * K), torch.randn(B, H, T, K)
    queries, keys = torch.tensor([3, 5, 2]), torch.arange(S)
    for_rows = queries.expand(B, T), keys.expand(B, S)
    assert positions.add(x, for_rows[0]).equal(positions.add(x, queries))
    bias, bias_for_rows = positions.bias(queries, keys), positions.bias(*for_rows)
    if bias is not None and bias_for_rows is not None:
        assert bias.shape == (H, T, S)
        assert bias_for_rows.equal(bias.expand(B, H, T, S))
    rotation, rotation_for_rows = positions.rotation(queries), positions.rotation(for_rows[0])
    if rotation is not None and rotation_for_rows is not None:
        assert rotate(q, rotation).equal(rotate(q, rotation_for_rows))


def test_only_what_is_learnt_is_saved() -> None:
    saved = {kind: sorted(build(kind).state_dict()) for kind in KINDS}
    assert {kind: names for kind, names in saved.items() if names} == {
        "learned": ["table.weight"],
        "t5": ["weight.weight"],
    }


def test_sinusoids_are_looked_up_by_position() -> None:
    added = Sinusoidal(22, 7, "halves").add(torch.zeros(B, T, 22), torch.tensor([6, 0, 4]))
    torch.testing.assert_close(added[1], sinusoids(7, 22, "halves")[[6, 0, 4]].float())


# Rotary


def test_a_pair_turned_by_hand() -> None:
    """K = 4: the pairs are features (0, 2) and (1, 3); at position p they turn by p and p/100."""
    x = torch.tensor([[[[1.0, 0, 0, 1]]]], dtype=torch.float64)
    turned = rotate(x, Rotary(4).double().rotation(torch.tensor([3])))
    exactly(turned[0, 0, 0], torch.tensor([cos(3), -sin(0.03), sin(3), cos(0.03)], dtype=torch.float64))


def test_scores_depend_on_the_distance_alone() -> None:
    rotary, (q, k) = Rotary(K).double(), torch.randn(2, 1, 1, 1, K, dtype=torch.float64)

    def score(t: int, s: int) -> Tensor:
        return rotate(q, rotary.rotation(torch.tensor([t]))) @ rotate(k, rotary.rotation(torch.tensor([s]))).mT

    for distance in (-3, 0, 5):
        exactly(score(401 + distance, 401), score(7 + distance, 7))
    assert (score(5, 0) - score(0, 5)).abs() > 0.1  # and before is not after


def test_turning_keeps_lengths_and_position_zero() -> None:
    rotary, x = Rotary(K).double(), torch.randn(B, H, T, K, dtype=torch.float64)
    turned = rotate(x, rotary.rotation(torch.arange(T)))
    exactly(turned.norm(dim=-1), x.norm(dim=-1))
    assert turned[:, :, 0].equal(x[:, :, 0])
    assert not turned[:, :, 1].equal(x[:, :, 1])


# ALiBi


def test_slopes_by_hand() -> None:
    assert alibi_slopes(8).tolist() == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    assert alibi_slopes(1).tolist() == [1 / 256]
    # Not a power of two: those of 4 heads, then the first, third … of 8 heads.
    assert alibi_slopes(7).tolist() == [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8, 1 / 32]


def test_the_farther_the_fainter() -> None:
    bias = Alibi(2).bias(torch.tensor([1, 3]), torch.arange(4))  # slopes 1/16 and 1/256
    assert (bias[0] * -16).tolist() == [[1, 0, 1, 2], [3, 2, 1, 0]]
    assert bias[1].equal(bias[0] / 16)


# T5


@pytest.mark.parametrize("is_causal", [True, False], ids=["decoder", "encoder"])
@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (14, 53)])
def test_buckets_are_those_of_hugging_face(is_causal: bool, n_buckets: int, max_distance: int) -> None:
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    ahead = torch.arange(-307, 308)
    ours = Relative(H, n_buckets, max_distance, is_causal).bucket(ahead)
    theirs = t5.T5Attention._relative_position_bucket(ahead, not is_causal, n_buckets, max_distance)
    assert ours.equal(theirs)
    assert ours.unique().numel() == n_buckets if is_causal else n_buckets - 1  # both ways, "0 ahead" is never used


def test_bias_is_the_number_of_the_bucket() -> None:
    relative = Relative(H, is_causal=True)
    bias = relative.bias(torch.tensor([2]), torch.arange(S))  # two behind, one behind, here, ahead, ahead
    assert bias[:, 0].T.equal(relative.weight.weight[[2, 1, 0, 0, 0]])


def test_angles_are_exact_whatever_the_model_is_cast_to() -> None:
    positions = torch.tensor([2, 1999])
    exact, half = Rotary(10), Rotary(10).to(torch.bfloat16)
    for ours, theirs in zip(exact.rotation(positions), half.rotation(positions)):
        exactly(ours, theirs)
    exactly(exact.rotation(positions)[0], (positions[:, None] * frequencies(10)).cos())

"""What theory fixes of ∂h_t/∂h_k, and that the product is the derivative of the whole way."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import jacrev
from torch.testing import assert_close

from clearformer.claims.jacobians import through_layer, through_time
from clearformer.claims.readers import Attentive, D, Recurrent
from clearformer.layers.cells import CELLS

from ..bounds import float32_bound

B, T, K = 2, 101, 7


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def linear(W: Tensor) -> Tensor:
    """Norms by distance of h' = x + W h, on random inputs."""
    return through_time(lambda x, state: x + F.linear(state, W), random(B, T, K), random(1, B, K))


def test_an_orthogonal_linear_unit_keeps_the_norm_at_1() -> None:
    W = nn.init.orthogonal_(random(K, K))
    assert_close(linear(W), torch.ones(B, T + 1, dtype=torch.float64), rtol=1e-12, atol=0)


def test_a_contracting_linear_unit_decays_at_the_rate_of_the_spectral_radius() -> None:
    """Of any matrix, not only a scaled rotation: the first steps may be longer, the rate in the long run is ρ."""
    W = random(K, K)
    W *= 0.9 / torch.linalg.eigvals(W).abs().max()
    assert torch.linalg.matrix_norm(W, 2) > 1  # one step can even stretch
    norms = linear(W)
    assert_close(
        (norms[:, 100] / norms[:, 40]) ** (1 / 60), torch.full((B,), 0.9, dtype=torch.float64), rtol=0.01, atol=0
    )


def test_a_contracting_rotation_decays_exactly() -> None:
    norms = linear(0.9 * nn.init.orthogonal_(random(K, K)))
    assert_close(norms[0], 0.9 ** torch.arange(T + 1, dtype=torch.float64))


def test_tanh_only_contracts() -> None:
    """|W diag φ′| ≤ |W|, so that the linear unit bounds it."""
    W = nn.init.orthogonal_(random(K, K))
    norms = through_time(lambda x, state: torch.tanh(x + F.linear(state, W)), random(B, T, K), random(1, B, K))
    assert (norms[:, 1:] < 1).all()
    assert norms[0, 100] < 1e-10


@pytest.mark.parametrize("cell", CELLS)
def test_the_product_is_the_derivative_of_the_whole_way(cell: str) -> None:
    kind, T, d = CELLS[cell], 5, 3
    n = len(kind.gate_names)
    W, x, start = random(n * K, K), random(B, T, n * K), random(kind.n_states, B, K)

    def step(x: Tensor, state: Tensor) -> Tensor:
        return kind.step(x, state, W, None)

    norms = through_time(step, x, start)
    for row in range(B):
        state = start[:, row]
        for t in range(T - d):
            state = step(x[row, t], state)

        def onwards(state: Tensor, row: int = row) -> Tensor:
            for t in range(T - d, T):
                state = step(x[row, t], state)
            return state.flatten()

        whole = jacrev(onwards)(state).flatten(1)
        assert_close(norms[row, d], torch.linalg.matrix_norm(whole, 2))


@pytest.mark.parametrize(("cell", "gates"), [("gru", (0.0, 40.0, 0.0)), ("lstm", (-40.0, 40.0, 0.0, -40.0))])
def test_gates_that_keep_all_keep_the_gradient(cell: str, gates: tuple[float, ...]) -> None:
    """GRU with z = 1: h' = h. LSTM with u = 0, f = 1, o = 0: m' = m, and h' says nothing."""
    kind, shut = CELLS[cell], torch.tensor(gates).repeat_interleave(K).double()
    W = torch.zeros(len(gates) * K, K, dtype=torch.float64)
    norms = through_time(lambda x, s: kind.step(shut, s, W, None), random(B, T, 1), random(kind.n_states, B, K))
    assert_close(norms, torch.ones_like(norms))


def test_through_a_layer_at_every_distance() -> None:
    """A layer that adds up A_k x_k: the norm at distance d is that of A_{T−d}."""
    matrices = random(5, K, K)
    norms = through_layer(lambda x: torch.einsum("tij,btj->bti", matrices, x).cumsum(dim=1), random(B, 5, K))
    assert_close(norms[0], torch.linalg.matrix_norm(matrices, 2).flip(0))


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_a_reader_begins_orthogonal_gate_by_gate(cell: str) -> None:
    for matrix in Recurrent(11, cell).orthogonal(3.0).matrices():
        # Rows of length 3, made in float32 by sums over D and multiplied by others: Σ|x y| is at most 9.
        assert_close(matrix @ matrix.T, 9 * torch.eye(D), atol=float32_bound(2 * D, 9.0), rtol=0)


def test_uniform_attention_feels_all_distances_alike() -> None:
    """With scores of 0 each of T positions is felt through W_o W_v / T, whatever its distance."""
    torch.manual_seed(2)
    reader = Attentive(11)
    reader.residual.norm = nn.Identity()
    reader.attn.qkv.weight.data[: 2 * D] = 0
    tokens = torch.arange(7)[None]
    value, out = reader.attn.qkv.weight[2 * D :], reader.attn.out.weight
    with torch.no_grad():
        assert_close(
            reader.norms(tokens)[0, 1:],
            (torch.linalg.matrix_norm(out @ value, 2) / 7).double().expand(6),
            rtol=1e-5,
            atol=0,
        )

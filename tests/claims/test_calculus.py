"""The notes' derivatives, entry by entry as they lay them out, beside torch's.

Numerator layout: a derivative has the rows of what is derived and the columns of what it is derived by, and what it is
derived by lies down. torch.func.jacrev gives (what is derived, what it is derived by), a matrix standing.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import jacrev
from torch.testing import assert_close

M, N = 3, 5
H = 1e-6


def slope(f: Callable[[Tensor], Tensor], x: Tensor, *entry: int) -> Tensor:
    """∂f/∂x_entry as the quotient of differences, which knows no layout."""
    step = torch.zeros_like(x)
    step[entry] = H
    return (f(x + step) - f(x - step)) / (2 * H)


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def test_vector_by_scalar_is_a_column() -> None:
    a, x = numbers(M), numbers(1)[0]
    laid_out = torch.stack([slope(lambda x, i=i: torch.sin(a * x)[i], x) for i in range(M)])  # (M,)
    assert_close(jacrev(lambda x: torch.sin(a * x))(x), laid_out)


def test_scalar_by_vector_is_a_row() -> None:
    """So that dy = (∂y/∂x) dx needs no transpose. The gradient, a column, is its transpose."""
    a, x, dx = numbers(M), numbers(M + 1)[1:], 1e-4 * numbers(M + 2)[2:]

    def f(x: Tensor) -> Tensor:
        return torch.sin(a @ x)

    row = torch.stack([slope(f, x, i) for i in range(M)])[None]  # (1, M)
    assert_close(jacrev(lambda x: f(x)[None])(x), row)
    assert_close(f(x + dx) - f(x), (row @ dx[:, None])[0, 0], rtol=1e-2, atol=0)


def test_vector_by_vector_has_a_row_for_each_component() -> None:
    A, x = numbers(M, N), numbers(N)
    laid_out = torch.stack([slope(lambda x: torch.tanh(A @ x), x, j) for j in range(N)], dim=1)  # (M, N)
    assert_close(jacrev(lambda x: torch.tanh(A @ x))(x), laid_out)


def test_matrix_by_scalar_keeps_its_shape() -> None:
    A, x = numbers(M, N), numbers(1)[0]
    laid_out = slope(lambda x: torch.sin(A * x), x)
    assert laid_out.shape == (M, N)
    assert_close(jacrev(lambda x: torch.sin(A * x))(x), laid_out)


def test_scalar_by_matrix_lies_down() -> None:
    """(N, M) for a matrix (M, N); torch has it standing, as the parameter that a step is subtracted from stands."""
    a, b, X = numbers(M), numbers(N), numbers(M, N)

    def f(X: Tensor) -> Tensor:
        return torch.sin(a @ X @ b)

    laid_out = torch.stack([torch.stack([slope(f, X, i, j) for i in range(M)]) for j in range(N)])  # (N, M)
    assert_close(jacrev(f)(X).T, laid_out)


def test_a_constant_matrix_stays_outside() -> None:
    """y = A x(z): ∂y/∂z = A ∂x/∂z."""
    A, B, z = numbers(M, N), numbers(N, 2), numbers(2)
    assert_close(jacrev(lambda z: A @ torch.sin(B @ z))(z), A @ jacrev(lambda z: torch.sin(B @ z))(z))


def test_a_product_of_vectors_has_two_terms() -> None:
    """α = y(z)'x(z): ∂α/∂z = x' ∂y/∂z + y' ∂x/∂z, every term by the same z; by a z_i each it is another vector."""
    A, B, z = numbers(N, N), numbers(N, N).T, numbers(N)

    def x(z: Tensor) -> Tensor:
        return torch.sin(A @ z)

    def y(z: Tensor) -> Tensor:
        return torch.tanh(B @ z)

    right = x(z) @ jacrev(y)(z) + y(z) @ jacrev(x)(z)
    assert_close(jacrev(lambda z: y(z) @ x(z))(z), right)
    slipped = x(z) * jacrev(y)(z).diagonal() + y(z) * jacrev(x)(z).diagonal()  # ∂y_i/∂z_i
    assert (slipped - right).abs().max() > 0.1
    assert (slipped.sum() - right).abs().max() > 0.1


def test_a_recurrent_step_by_the_state_before() -> None:
    """h_i = U x + W φ(h_{i−1}): ∂h_i/∂h_{i−1} = W diag φ′(h_{i−1}); with W' it is another matrix."""
    W, Ux, h = numbers(N, N), numbers(N), numbers(N + 1)[1:]
    jacobian = jacrev(lambda h: Ux + W @ torch.tanh(h))(h)
    inner = torch.diag(1 - torch.tanh(h) ** 2)
    assert_close(jacobian, W @ inner)
    assert (jacobian - W.T @ inner).abs().max() > 0.1


def test_factors_longer_than_one_need_not_explode() -> None:
    """Shorter ones do vanish: |AB| ≤ |A| |B| bounds a product from above only."""
    W = torch.tensor([[0.0, 2.0], [0.0, 0.0]])
    assert torch.linalg.matrix_norm(W, 2) == 2
    assert not (W @ W).any()

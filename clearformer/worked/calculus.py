"""The five layouts of derivatives and two identities: entry by entry as the notes write them, beside torch's."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.func import jacrev

from clearformer.worked.example import Figure, worked

PLACE = "deep-learning course, before 09/03"
A = torch.tensor([[1.0, 2, 0], [0, 1, 3]], dtype=torch.float64)
X = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)


def quotient(f: Callable[[Tensor], Tensor], x: Tensor, *entry: int) -> Tensor:
    """Return ∂f/∂x_entry as a quotient of differences, which knows no layout."""
    step = torch.zeros_like(x)
    step[entry] = 1e-6
    return (f(x + step) - f(x - step)) / 2e-6


def sine(X: Tensor) -> Tensor:
    return torch.sin(X.sum(0)).prod()


@worked("derivatives", "the five layouts of a derivative", f"{PLACE}, l.9-51", quotient)
def layouts() -> Iterator[Figure]:
    x, M = torch.tensor(0.7, dtype=torch.float64), A.clone()
    column = jacrev(lambda x: torch.sin(X * x))(x)
    yield Figure("① vector by scalar: a column", numbers(column), rows([quotient(lambda x: torch.sin(X * x), x)])[0])
    row = jacrev(lambda x: (x @ x)[None])(X)
    by_hand = [[2 * value for value in X.tolist()]]
    yield Figure("② scalar by vector, of xᵀx: a row", numbers(row), by_hand)
    yield Figure(
        "the gradient ∇f as the notes first write it", list(row.shape), [3, 1], [1, 3],
        "∇f is a column at first, ∂y/∂x a row later; in the numerator layout both are rows",
    )  # fmt: skip
    jacobian = jacrev(lambda x: torch.tanh(A @ x))(X)
    entries = [[quotient(lambda x: torch.tanh(A @ x), X, j)[i].item() for j in range(3)] for i in range(2)]
    yield Figure("③ vector by vector: ∂y_i/∂x_j in row i", numbers(jacobian), entries, tolerance=1e-5)
    by_scalar = jacrev(lambda x: torch.sin(M * x))(x)
    yield Figure("④ matrix by scalar: the shape of the matrix", list(by_scalar.shape), [2, 3])
    by_matrix = jacrev(sine)(M).T
    lying = [[quotient(sine, M, i, j).item() for i in range(2)] for j in range(3)]
    yield Figure("⑤ scalar by matrix: lying down, n×m", numbers(by_matrix), lying, tolerance=1e-5)


@worked("identities", "∂(Ax)/∂z = A ∂x/∂z and ∂(yᵀx)/∂z = xᵀ ∂y/∂z + yᵀ ∂x/∂z", f"{PLACE}, l.53-61", quotient)
def identities() -> Iterator[Figure]:
    z, B = X, torch.tensor([[0.0, 1, 1], [1, 0, 2], [3, 1, 0]], dtype=torch.float64)

    def x(z: Tensor) -> Tensor:
        return torch.sin(B @ z)

    def y(z: Tensor) -> Tensor:
        return torch.tanh(B.T @ z)

    yield Figure("y = A x(z)", numbers(jacrev(lambda z: A @ x(z))(z)), numbers(A @ jacrev(x)(z)))
    whole = jacrev(lambda z: y(z) @ x(z))(z)
    terms = x(z) @ jacrev(y)(z) + y(z) @ jacrev(x)(z)
    yield Figure("α = y(z)ᵀ x(z), the last line", numbers(whole), numbers(terms))
    apart = x(z) * jacrev(y)(z).diagonal() + y(z) * jacrev(x)(z).diagonal()
    slip = "the middle line derives each term by a z_i different from the others; all terms are derived by the same z"
    yield Figure("the middle line, for z_1", whole[0].item(), apart[0].item(), terms[0].item(), slip)


def numbers(tensor: Tensor) -> list[float]:
    values: list[float] = tensor.tolist()
    return values


def rows(tensors: list[Tensor]) -> list[list[float]]:
    return [numbers(tensor) for tensor in tensors]

import numpy as np
import pytest
import torch

from clearformer.errors import DataError
from clearformer.layers.pca import fit_pca

N, D, K = 97, 11, 3


@pytest.fixture
def points() -> torch.Tensor:
    """Longer in some directions than in others, and not around zero."""
    generator = torch.Generator().manual_seed(0)
    stretch = torch.randn(D, D, generator=generator, dtype=torch.float64)
    return torch.randn(N, D, generator=generator, dtype=torch.float64) @ stretch + 5


def test_it_is_scikit_learns(points: torch.Tensor) -> None:
    decomposition = pytest.importorskip("sklearn.decomposition")
    theirs, ours = decomposition.PCA(K, svd_solver="full").fit(points.numpy()), fit_pca(points, K)
    signs = (torch.from_numpy(theirs.components_) * ours.components).sum(1).sign()[:, None]
    torch.testing.assert_close(ours.components, torch.from_numpy(theirs.components_) * signs)
    torch.testing.assert_close(ours.variances, torch.from_numpy(theirs.explained_variance_))
    torch.testing.assert_close(ours.explained, torch.from_numpy(theirs.explained_variance_ratio_))
    codes = ours.transform(points)
    torch.testing.assert_close(codes, torch.from_numpy(theirs.transform(points.numpy())) * signs.mT)
    expected = torch.from_numpy(theirs.inverse_transform(theirs.transform(points.numpy())))
    torch.testing.assert_close(ours.reconstruct(codes), expected)


def test_components_are_the_covariances_own_vectors(points: torch.Tensor) -> None:
    values, vectors = np.linalg.eigh(np.cov(points.numpy(), rowvar=False))  # rising
    found = fit_pca(points, K)
    np.testing.assert_allclose(found.variances, values[::-1][:K])
    likeness = found.components.numpy() @ vectors[:, ::-1][:, :K]
    np.testing.assert_allclose(np.abs(likeness), np.eye(K), atol=1e-9)
    np.testing.assert_allclose(found.explained, values[::-1][:K] / values.sum())


def test_a_line_is_found_by_hand() -> None:
    """(0, 0), (3, 4), (6, 8): the direction is (0.6, 0.8), and steps of 5 have a variance of 25."""
    found = fit_pca(torch.tensor([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]]), 1)
    torch.testing.assert_close(found.components, torch.tensor([[0.6, 0.8]]))
    torch.testing.assert_close(found.variances, torch.tensor([25.0]))
    torch.testing.assert_close(found.explained, torch.tensor([1.0]))
    torch.testing.assert_close(found.transform(torch.tensor([[6.0, 8.0]])), torch.tensor([[5.0]]))


def test_what_is_lost_is_the_variance_that_is_left(points: torch.Tensor) -> None:
    some, every = fit_pca(points, K), fit_pca(points, D)
    lost = (some.reconstruct(some.transform(points)) - points).square().sum() / (N - 1)
    torch.testing.assert_close(lost, every.variances[K:].sum())
    torch.testing.assert_close(every.reconstruct(every.transform(points)), points)
    torch.testing.assert_close(every.components @ every.components.mT, torch.eye(D, dtype=torch.float64))


@pytest.mark.parametrize(("n", "k"), [(97, 12), (2, 3), (1, 1)])
def test_more_components_than_there_are(points: torch.Tensor, n: int, k: int) -> None:
    with pytest.raises(DataError, match=rf"cannot compute {k} principal components? from {n} points? with 11 features"):
        fit_pca(points[:n], k)

"""Principal components: the directions along which points differ most (Pearson 1901).

X − μ = U S V'                 singular values in falling order, so that v_1 explains most
z     = (x − μ) V_K            the code: coordinates along the first K
x̂     = z V_K' + μ             of all linear reconstructions from K numbers, the one of least Σ (x̂ − x)²
σ²_k  = S_k² / (n − 1)         the variance along v_k
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearformer.errors import DataError


@dataclass(frozen=True)
class PCA:
    """Of points (n, D): mean (D,), components (K, D) of length 1, variances (K,), and the variance of all there is."""

    mean: Tensor
    components: Tensor
    variances: Tensor
    total: float

    @property
    def explained(self) -> Tensor:
        """The share of all variance that lies along each component, (K,)."""
        return self.variances / self.total

    def transform(self, points: Tensor) -> Tensor:
        """(…, D) -> (…, K)"""
        return (points - self.mean) @ self.components.mT

    def reconstruct(self, codes: Tensor) -> Tensor:
        """(…, K) -> (…, D)"""
        return codes @ self.components + self.mean


def fit_pca(points: Tensor, n_components: int) -> PCA:
    """Of points (n, D). A component and its opposite are one direction: the largest entry is made positive."""
    n, D = points.shape
    if n < 2 or n_components > min(n, D):
        raise DataError(
            f"{n} points of {D} numbers have no {n_components} principal components",
            f"ask for {min(n, D)} or fewer" if n > 1 else "give two points or more",
        )
    mean = points.mean(0)
    _, S, Vt = torch.linalg.svd(points - mean, full_matrices=False)
    largest = Vt.gather(1, Vt.abs().argmax(1, keepdim=True))  # (min(n, D), 1)
    variances = S.square() / (n - 1)
    return PCA(mean, (Vt * largest.sign())[:n_components], variances[:n_components], float(variances.sum()))

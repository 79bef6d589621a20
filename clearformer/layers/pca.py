"""Principal component analysis: the directions along which points vary most (Pearson 1901).

X − μ = U S V'                 singular values in descending order, so that v_1 explains the most variance
z     = (x − μ) V_K            the code: coordinates along the first K components
x̂     = z V_K' + μ             the linear reconstruction from K values with the smallest Σ (x̂ − x)²
σ²_k  = S_k² / (n − 1)         the variance along v_k
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearformer.errors import DataError
from clearformer.wording import count


@dataclass(frozen=True)
class PCA:
    """A fit to points (n, D): mean (D,), components (K, D) of unit length, variances (K,) and the total variance."""

    mean: Tensor
    components: Tensor
    variances: Tensor
    total: float

    @property
    def explained(self) -> Tensor:
        """The fraction of the total variance along each component, (K,)."""
        return self.variances / self.total

    def transform(self, points: Tensor) -> Tensor:
        """Project points (…, D) onto the components; returns codes (…, K)."""
        return (points - self.mean) @ self.components.mT

    def reconstruct(self, codes: Tensor) -> Tensor:
        """Reconstruct points (…, D) from codes (…, K)."""
        return codes @ self.components + self.mean


def fit_pca(points: Tensor, n_components: int) -> PCA:
    """Fit a PCA to points (n, D). The sign of a component is arbitrary, so its largest entry is made positive."""
    n, D = points.shape
    if n < 2 or n_components > min(n, D):
        raise DataError(
            f"cannot compute {count(n_components, 'principal component')} "
            f"from {count(n, 'point')} with {count(D, 'feature')}",
            f"use at most {count(min(n, D), 'component')}" if n > 1 else "use at least 2 points",
        )
    mean = points.mean(0)
    _, S, Vt = torch.linalg.svd(points - mean, full_matrices=False)
    largest = Vt.gather(1, Vt.abs().argmax(1, keepdim=True))  # (min(n, D), 1)
    variances = S.square() / (n - 1)
    return PCA(mean, (Vt * largest.sign())[:n_components], variances[:n_components], float(variances.sum()))

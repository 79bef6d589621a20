"""Pearson's correlation: how nearly two rows of numbers lie on a rising line, from −1 to 1.

r = Σ (x − x̄)(y − ȳ) / √(Σ (x − x̄)² Σ (y − ȳ)²)
"""

from collections.abc import Sequence

import numpy as np

from clearformer.errors import DataError


def pearson(x: Sequence[float], y: Sequence[float]) -> float:
    """0 where one side does not vary, and the correlation is not defined."""
    if len(x) != len(y) or len(x) == 0:
        raise DataError(f"nothing to correlate: {len(x)} and {len(y)} numbers", "give as many of one as of the other")
    a, b = (np.asarray(side, "float64") - np.mean(side, dtype="float64") for side in (x, y))
    spread = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / spread if spread else 0.0

"""Pearson's correlation of two sequences: 1 if all points (x, y) are on a rising line, −1 if on a falling line.

r = Σ (x − x̄)(y − ȳ) / √(Σ (x − x̄)² Σ (y − ȳ)²)
"""

from collections.abc import Sequence

import numpy as np

from clearformer.errors import DataError
from clearformer.wording import count


def pearson(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the correlation, or 0 if it is undefined because one of the sequences is constant."""
    if len(x) != len(y) or len(x) == 0:
        raise DataError(
            f"cannot correlate {count(len(x), 'value')} with {count(len(y), 'value')}",
            "give two sequences of the same length, with at least one value",
        )
    a, b = (np.asarray(values, "float64") - np.mean(values, dtype="float64") for values in (x, y))
    spread = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / spread if spread else 0.0

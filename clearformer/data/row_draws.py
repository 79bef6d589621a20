"""Random draws that belong to a row of a text: the same numbers whenever, and beside whichever rows, it is read.

    draw = RowDraws(rows, versions, width)              rows, versions (B,); a generator for each (row, version)
    draw.random((B, T))                                 uniform in [0, 1), T at most `width`

No seed of a training takes part: like texts that are masked in files, the versions are the same for all runs.
It has the methods of `numpy.random.Generator` that draw masks and pairs. A row takes `width` numbers of a table,
however many columns the batch has, so that longer rows beside it change nothing.
"""

import numpy as np
from numpy.typing import ArrayLike


class RowDraws:
    def __init__(self, rows: np.ndarray, versions: np.ndarray, width: int) -> None:
        self.generators = [np.random.default_rng(key) for key in zip(rows.tolist(), versions.tolist())]
        self.width = width

    def random(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return uniform numbers (B, T)."""
        assert shape[0] == len(self.generators)
        assert shape[1] <= self.width
        return np.stack([draw.random(self.width)[: shape[1]] for draw in self.generators])

    def integers(self, low: ArrayLike, high: ArrayLike, size: int | None = None) -> np.ndarray:
        """Return an integer of low ≤ n < high for each row, (B,)."""
        assert size in (None, len(self.generators))
        bounds = np.broadcast_arrays(low, high, np.zeros(len(self.generators)))[:2]
        return np.array([draw.integers(*bound) for draw, *bound in zip(self.generators, *bounds)], "int64")

    def choice(self, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """Return elements of `values` (n,), drawn with replacement: (B, T)."""
        return values[(self.random(shape) * len(values)).astype("int64")]


Draws = np.random.Generator | RowDraws

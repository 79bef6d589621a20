"""Output sizes and receptive fields of filters.

    N' = ⌊(N − F + 2P) / S⌋ + 1            N pixels, filter size F, padding P on both sides, stride S
    P  = ((N − 1)(S − 1) + F − 1) / 2      keeps N' = N; with S = 1 that is (F − 1) / 2 for every N

    r' = r + (F − 1) j                     receptive field: the pixels of the image that affect one output value
    j' = j S                               distance between neighbouring outputs, in pixels of the image

For the image itself, r and j are 1. A layer that reads a whole N × N map, such as a dense layer or a mean, counts as a
filter of size F = N.
"""

from dataclasses import dataclass


def output_size(N: int, F: int, S: int = 1, P: int = 0) -> int:
    """Return the number of rows (or columns) after a convolution or a pooling layer."""
    return (N - F + 2 * P) // S + 1


def same_padding(F: int, S: int = 1, N: int = 1) -> int:
    """Return the padding P that keeps the size N; raise a ValueError if it is not a whole number of pixels."""
    if (twice := (N - 1) * (S - 1) + F - 1) % 2:
        raise ValueError(
            f"a filter of size {F} cannot keep the size of its input: "
            f"it would need {twice / 2} pixels of padding per side"
        )
    return twice // 2


@dataclass(frozen=True)
class ReceptiveField:
    size: int = 1  # r
    step: int = 1  # j

    def after(self, F: int, S: int = 1) -> "ReceptiveField":
        return ReceptiveField(self.size + (F - 1) * self.step, self.step * S)

"""Where a filter looks, and how large what it returns is.

    N' = ⌊(N − F + 2P) / S⌋ + 1            N pixels, a filter of F, P zeros on either side, S pixels a step
    P  = ((N − 1)(S − 1) + F − 1) / 2      keeps N' = N; with S = 1 that is (F − 1) / 2, whatever N is

    r' = r + (F − 1) j                     receptive field: the pixels of the picture that one number can see
    j' = j S                               pixels of the picture from one number to the next

Both start at 1 in the picture itself. A layer that reads a whole map of N × N, dense or a mean, is a filter of F = N.
"""

from dataclasses import dataclass


def output_size(N: int, F: int, S: int = 1, P: int = 0) -> int:
    """Rows, or columns, of a convolution's or a pool's output."""
    return (N - F + 2 * P) // S + 1


def same_padding(F: int, S: int = 1, N: int = 1) -> int:
    """The P that keeps a size; half a pixel is not to be had."""
    if (twice := (N - 1) * (S - 1) + F - 1) % 2:
        raise ValueError(f"a filter of {F} cannot keep {N} pixels with the same padding on either side")
    return twice // 2


@dataclass(frozen=True)
class ReceptiveField:
    size: int = 1  # r
    step: int = 1  # j

    def after(self, F: int, S: int = 1) -> "ReceptiveField":
        return ReceptiveField(self.size + (F - 1) * self.step, self.step * S)

"""CTC best-path decoding: the most probable token at each frame of a recording (Graves et al. 2006).

π_t = argmax p(π_t | x)        for each frame separately
aa-ab- → a a b                 merge repeats, then drop blanks (-)
"""

from itertools import groupby
from typing import NamedTuple

from torch import Tensor


class TimedToken(NamedTuple):
    """A token and the frames it spans, from `start` up to but excluding `end`."""

    token: int
    start: int
    end: int


def best_path(logits: Tensor, lengths: Tensor) -> list[list[TimedToken]]:
    """Return the tokens of each row, from logits (B, T, V + 1), with the CTC blank last, and frame counts (B,)."""
    blank, rows = logits.size(-1) - 1, []
    for path, n in zip(logits.argmax(-1).tolist(), lengths.tolist()):
        runs = [(token, list(run)) for token, run in groupby(range(n), path.__getitem__)]
        rows.append([TimedToken(token, run[0], run[-1] + 1) for token, run in runs if token != blank])
    return rows

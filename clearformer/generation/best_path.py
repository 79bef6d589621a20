"""The likeliest path through a recording, and what it says (Graves et al. 2006, best path decoding).

π_t = argmax p(π_t | x)        at each moment by itself
aa-ab- → a a b                 repeats are dropped, and then blanks
"""

from itertools import groupby
from typing import NamedTuple

from torch import Tensor


class Said(NamedTuple):
    """A token and the moments that it lasts: `start` up to, and without, `end`."""

    token: int
    start: int
    end: int


def best_path(logits: Tensor, lengths: Tensor) -> list[list[Said]]:
    """logits (B, T, V + 1), the blank's last; lengths (B,), moments of each row -> what is said in each."""
    blank, found = logits.size(-1) - 1, []
    for path, n in zip(logits.argmax(-1).tolist(), lengths.tolist()):
        runs = [(token, list(run)) for token, run in groupby(range(n), path.__getitem__)]
        found.append([Said(token, run[0], run[-1] + 1) for token, run in runs if token != blank])
    return found

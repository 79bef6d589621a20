"""A sound at another rate: the curve through its samples, without what the new rate cannot carry, read elsewhere.

    y(m) = Σ_n x(n) h(m / new − n / old),    h(t) = k/old sinc(k t) cos²(π k t / 2Z) for |k t| < Z,  k ≈ min(old, new)

With old and new in lowest terms, sample m needs one of only `new` filters: m mod new says which (a polyphase filter).
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

ZEROS = 16  # crossings of the sinc on each side
ROOM = 0.95  # of the band that is kept, so that the filter has fallen before sounds would fold back


def resample(x: Tensor, old: int, new: int) -> Tensor:
    """x (N,) at `old` samples a second -> (⌈N · new / old⌉,) at `new`."""
    if old == new:
        return x
    common = math.gcd(old, new)
    old, new = old // common, new // common
    kept = ROOM * min(old, new)  # in units of the common rate
    reach = math.ceil(ZEROS * old / kept)  # samples on each side
    n = torch.arange(-reach, reach + old, dtype=torch.float64)
    t = (torch.arange(new, dtype=torch.float64)[:, None] / new - n / old) * kept  # (new, 2 · reach + old)
    h = torch.sinc(t) * (t * math.pi / (2 * ZEROS)).cos().square() * (t.abs() < ZEROS) * kept / old
    length = math.ceil(len(x) * new / old)
    padded = F.pad(x[None, None], (reach, reach + old))
    return F.conv1d(padded, h.to(x.dtype)[:, None], stride=old)[0].mT.flatten()[:length]

"""A sound at another rate: the curve through its samples, without what the new rate cannot carry, read elsewhere.

    y(m) = Σ_n x(n) h(m / new − n / old),    h(t) = k/old sinc(k t) cos²(π k t / 2Z) for |k t| < Z,  k ≈ min(old, new)

With old and new in lowest terms, sample m needs one of only `new` filters: m mod new says which (a polyphase filter).
Each is short: neighbours go together over the stretch of sound that they share, and `old` samples on they start anew.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

ZEROS = 16  # crossings of the sinc on each side
ROOM = 0.95  # of the band that is kept, so that the filter has fallen before sounds would fold back
TOGETHER = 64  # filters: fewer share less of their work, more have more zeros at their ends


def resample(x: Tensor, old: int, new: int) -> Tensor:
    """x (N,) at `old` samples a second -> (⌈N · new / old⌉,) at `new`."""
    if old == new or not len(x):
        return x
    common = math.gcd(old, new)
    old, new = old // common, new // common
    kept = ROOM * min(old, new)  # in units of the common rate
    reach = math.ceil(ZEROS * old / kept)  # samples on each side
    length = math.ceil(len(x) * new / old)
    padded, rows = F.pad(x, (reach, reach + old)), []
    for m in torch.arange(min(new, length)).split(TOGETHER):
        first, last = (int(i) * old // new for i in (m[0], m[-1]))
        n = torch.arange(first - reach, last + reach + 2)
        t = (m[:, None].double() / new - n.double() / old) * kept
        h = torch.sinc(t) * (t * math.pi / (2 * ZEROS)).cos().square() * (t.abs() < ZEROS) * kept / old
        found = F.conv1d(padded[None, None, first:], h.to(x.dtype)[:, None], stride=old)[0]
        rows.append(found[:, : math.ceil(len(x) / old)])
    return torch.cat(rows).mT.flatten()[:length]

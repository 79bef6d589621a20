"""Resample a sound by band-limited sinc interpolation with a cos² window.

    y(m) = Σ_n x(n) h(m / new − n / old),    h(t) = k/old sinc(k t) cos²(π k t / 2Z) for |k t| < Z,  k ≈ min(old, new)

With old / new in lowest terms there are only `new` different filters, and sample m uses filter m mod new (a polyphase
filter). Filters are short, so neighbouring ones are applied together, in one strided convolution with a stride of
`old` samples.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

ZEROS = 16  # zero crossings of the sinc on each side
ROLLOFF = 0.95  # cutoff as a fraction of the Nyquist frequency, so that the filter has decayed before aliasing
GROUP = 64  # filters per convolution: fewer need more convolutions; with more, filters have more zeros at their ends


def resample(x: Tensor, old: int, new: int) -> Tensor:
    """Resample x (N,) from `old` to `new` samples per second; the result is (⌈N · new / old⌉,)."""
    if old == new or not len(x):
        return x
    common = math.gcd(old, new)
    old, new = old // common, new // common
    cutoff = ROLLOFF * min(old, new)  # in units of the common rate
    reach = math.ceil(ZEROS * old / cutoff)  # samples on each side
    length = math.ceil(len(x) * new / old)
    padded, rows = F.pad(x, (reach, reach + old)), []
    for m in torch.arange(min(new, length)).split(GROUP):
        first, last = (int(i) * old // new for i in (m[0], m[-1]))
        n = torch.arange(first - reach, last + reach + 2)
        t = (m[:, None].double() / new - n.double() / old) * cutoff
        h = torch.sinc(t) * (t * math.pi / (2 * ZEROS)).cos().square() * (t.abs() < ZEROS) * cutoff / old
        filtered = F.conv1d(padded[None, None, first:], h.to(x.dtype)[:, None], stride=old)[0]
        rows.append(filtered[:, : math.ceil(len(x) / old)])
    return torch.cat(rows).mT.flatten()[:length]

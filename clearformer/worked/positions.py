"""Sinusoidal positions: the table, its pairs, the matrix that shifts it, and why one wave is not enough."""

from collections.abc import Iterator
from math import cos, pi, sin

import torch

from clearformer.layers.positions import frequencies, shift_matrix, sinusoids
from clearformer.worked.example import Figure, worked

NOTES = "handwritten Transformer notes"


@worked("sinusoids", "the encoding of one position, D = 4",
        "Stanford lectures, p. 1, l.30-32; course, 20/04, l.1341-1354", sinusoids)  # fmt: skip
def table() -> Iterator[Figure]:
    here = sinusoids(2, 4)[1].tolist()
    slipped = [sin(1 / 10000**0.5), cos(1 / 10000**0.5), sin(1 / 10000), cos(1 / 10000)]
    right = [sin(1), cos(1), sin(0.01), cos(0.01)]
    yield Figure("PE(1)", here, slipped, right, "the exponents begin at 0, not at 2/d: the first pair is sin p, cos p")
    cosine = cos(1 / 10000 ** (1 / 4))
    slip = "sine and cosine of a pair have the same exponent 2i/d; (2i+1)/d is in neither paper nor code"
    yield Figure("PE(1, 1), the first cosine", here[1], cosine, cos(1), slip)
    first = sinusoids(1, 4)[0].tolist()
    slip = "the first word has position 0, in the paper and here; pos = 1 is the second"
    yield Figure("PE of the first word", first, right, [0.0, 1.0, 0.0, 1.0], slip)
    halves = sinusoids(2, 4, "halves")[1].tolist()
    yield Figure("the slides' layout: all sines, then all cosines", halves, [sin(1), sin(0.01), cos(1), cos(0.01)])


@worked("pairs", "512 dimensions as pairs of sine and cosine", f"{NOTES}, l.198-204", frequencies)
def pairs() -> Iterator[Figure]:
    waves = frequencies(512)
    yield Figure("pairs", len(waves), 264, 256, "512 / 2 = 256")
    falling = bool((waves.diff() < 0).all())
    yield Figure("frequencies fall", str(falling), "True")
    yield Figure("longest wave in tokens", 2 * pi / waves[-1].item(), expected=2 * pi * 10000 ** (510 / 512))


@worked("shift", "PE(pos + k) = T_k PE(pos)", f"{NOTES}, l.212-220", shift_matrix)
def shift() -> Iterator[Figure]:
    encodings = sinusoids(300, 64)
    for k in (1, 13, 100):
        error = (encodings[:-k] @ shift_matrix(k, 64).T - encodings[k:]).abs().max().item()
        yield Figure(f"largest error at 300 − k positions, k = {k}", round(error, 12), 0.0)
    orthogonal = shift_matrix(7, 64) @ shift_matrix(-7, 64) - torch.eye(64)
    yield Figure("largest entry of T_7 T_−7 − I", round(orthogonal.abs().max().item(), 12), 0.0)


@worked("one-wave", "a single sinusoid repeats: two words may get the same code", f"{NOTES}, l.190-196", sinusoids)
def one_wave() -> Iterator[Figure]:
    """The smallest distance between two of 2,000 positions."""
    single = nearest(torch.sin(torch.arange(2000, dtype=torch.float64) * frequencies(2)[0])[:, None])
    yield Figure("one sine: nearest two positions, to three decimals", round(single, 3), 0.0)
    several = nearest(sinusoids(2000, 64))
    yield Figure("64 sines and cosines: nearest two are apart", str(several > 1), "True")


def nearest(encodings: torch.Tensor) -> float:
    """Return the smallest distance between two different rows."""
    distances = torch.cdist(encodings, encodings)
    return distances.fill_diagonal_(torch.inf).min().item()

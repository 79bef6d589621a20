"""Attention by numbers: The cat sleeps, I am a good boy, the mask, and why scores are divided by √d_k."""

from collections.abc import Iterator
from math import exp, sqrt

import torch
from torch import Tensor

from clearformer.layers.attention import MultiHeadAttention, attend, match, normalise, pattern
from clearformer.layers.masks import Causal
from clearformer.worked.example import Figure, worked

CAT = torch.tensor([[1, 0.5, 0, 0.1], [0.3, 1.2, 0.7, 0], [0.8, 0, 0.9, 0.4]], dtype=torch.float64)


@worked(
    "cat", "The cat sleeps: two heads of width 2", "Stanford lectures, p. 4-5, l.95-142", MultiHeadAttention.forward
)
def cat() -> Iterator[Figure]:
    """The notes leave Q, K and V open. Here they are parts of the identity: head 1 reads the first two features."""
    layer = MultiHeadAttention(d_model=4, n_heads=2, bias=False).double()
    with torch.no_grad():
        layer.qkv.weight.copy_(torch.eye(4).repeat(3, 1))
        layer.out.weight.copy_(torch.eye(4))
        q, k, _ = layer.split(layer.qkv(CAT[None]))
        z = layer(CAT[None])[0]
    yield Figure("shape of X", list(CAT.shape), [3, 4])
    yield Figure("shape of X Q for each head", list(q.shape[2:]), [3, 2])
    yield Figure("shape of X Q (X K)ᵀ for each head", list((q @ k.mT).shape[2:]), [3, 3])
    yield Figure(
        "shape of all scores", list((q @ k.mT).shape[1:]), [3, 4, 3], expected=[2, 3, 3],
        slip="a stack of h = 2 matrices of n×n, not of 3 matrices in 3×4×n",
    )  # fmt: skip
    yield Figure("scores are divided by √(d/h)", layer.scale, 1 / sqrt(4 / 2))
    yield Figure("shape of the two heads, concatenated", list(z.shape), [3, 4])
    weights = [exp(score / sqrt(2)) for score in (1.25, 0.9, 0.8)]  # of (1, ½) with (1, ½), (0.3, 1.2), (0.8, 0)
    by_hand = [weight / sum(weights) for weight in weights]
    here = pattern(q, k, None, None, layer.scale)[0, 0, 0].tolist()
    yield Figure("head 1: what The attends to", here, expected=by_hand)
    mixed = [sum(w * x for w, x in zip(by_hand, column)) for column in ((1, 0.3, 0.8), (0.5, 1.2, 0))]
    yield Figure("head 1: the output for The", z[0, :2].tolist(), expected=mixed)


@worked("good-boy", "I am a good boy: Q, K, V and the order of words",
        "deep-learning course, 15/04 and 20/04, l.1179-1338", match, attend)  # fmt: skip
def good_boy() -> Iterator[Figure]:
    """The first three columns of X are the notes'; the others, and the matrices, are elided in the scan."""
    X = torch.tensor(
        [[0.75, 0.66, 0.21], [0.5, 0.2, 0.34], [0.6, 0.4, 0.32], [0.1, 0.25, 0.35], [0.5, 0.26, 0.5]],
        dtype=torch.float64,
    )
    x = X[None, None]
    scores, z = match(x, x, None, 1 / sqrt(3)), attend(x, x, x)
    yield Figure("shape of Q Kᵀ", list(scores.shape[2:]), [5, 5])
    by_hand = (0.75 * 0.5 + 0.66 * 0.2 + 0.21 * 0.34) / sqrt(3)
    yield Figure("score of I for am, with Q = K = X", scores[0, 0, 0, 1].item(), expected=by_hand)
    yield Figure("sum of each row after the softmax", normalise(scores, None).sum(-1).flatten().tolist(), [1.0] * 5)
    order = [1, 2, 0, 4, 3]
    moved = attend(x[:, :, order], x[:, :, order], x[:, :, order])
    difference = (moved - z[:, :, order]).abs().max().item()
    yield Figure("Am a I boy good: change of any word's output", round(difference, 12), 0.0)


@worked("mask", "Main ek achcha …: no word sees a later one", "deep-learning course, 20/04, l.1326-1334", normalise)
def mask() -> Iterator[Figure]:
    """The notes add a matrix of 1 and −∞. Adding 1 instead of the usual 0 changes no softmax."""
    torch.manual_seed(0)
    scores = torch.randn(1, 1, 4, 4, dtype=torch.float64)
    allowed = Causal().dense(4, 4, scores.device)
    here = normalise(scores, allowed)
    added = torch.softmax(scores.masked_fill(~allowed, -torch.inf) + torch.where(allowed, 1.0, 0.0), dim=-1)
    yield Figure("largest weight on a later word", here.masked_select(~allowed).max().item(), 0.0)
    yield Figure("what the first word attends to", here[0, 0, 0].tolist(), [1.0, 0.0, 0.0, 0.0])
    yield Figure("difference if 1 is added, as in the notes", round((here - added).abs().max().item(), 12), 0.0)


@worked("variance", "Var(q·k) = n Var(q) Var(k), so scores are divided by √d_k",
        "handwritten Transformer notes, l.123-155; slides, l.128", match, MultiHeadAttention)  # fmt: skip
def variance() -> Iterator[Figure]:
    """20,000 dot products each. The variance of a sample of N products has a standard error of about √(2/N): 1 %."""
    for n in (4, 64, 512):
        scores, scaled = (dot_products(n, scale) for scale in (1.0, 1 / sqrt(n)))
        yield Figure(f"Var(q·k), n = {n}", scores.var().item(), n, tolerance=0.06)
        yield Figure(f"Var(q·k / √{n})", scaled.var().item(), 1, tolerance=0.06)
    slip = "the slide divides by 8 = √64, for the d_k of the paper; it draws d_k = 3"
    yield Figure("the divisor for d_k = 3", 1 / MultiHeadAttention(9, n_heads=3).scale, 8, sqrt(3), slip)


def dot_products(n: int, scale: float) -> Tensor:
    """Return scores of 20,000 independent pairs of a query and a key, (20000,)."""
    q, k = torch.randn(2, 20_000, 1, 1, n, generator=torch.Generator().manual_seed(n))
    return match(q, k, None, scale).flatten()


@worked("saturation", "large scores leave the softmax no gradient", "handwritten Transformer notes, l.131-134", pattern)
def saturation() -> Iterator[Figure]:
    """The gradient of a softmax weight p by its own score is p (1 − p)."""

    def slope(scale: float) -> float:
        score = torch.tensor([[[[1.0]]]], dtype=torch.float64, requires_grad=True)
        keys = torch.tensor([[[[1.0], [0.0]]]], dtype=torch.float64)
        (gradient,) = torch.autograd.grad(pattern(score, keys, None, None, scale)[..., 0].sum(), score)
        return gradient.item() / scale

    for scale in (1.0, 30.0):
        p = 1 / (1 + exp(-scale))
        yield Figure(f"slope of the weight at a score of {scale:g}", slope(scale), expected=p * (1 - p))

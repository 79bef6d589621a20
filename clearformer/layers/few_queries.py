"""Attention of a few queries to more keys, as in a step of beam search on the CPU: two batched products.

    Z = softmax(Q K' · scale + M) V

torch's kernel divides queries and keys into blocks, for which a beam of hypotheses is too small. With 32 sentences,
8 heads and 4 hypotheses, the two products take a third of its time for 24 keys, and two thirds for 96; for a single
query it is faster (two cores of an EPYC with AVX2).
"""

import torch
from torch import Tensor

MAX_QUERIES, MAX_KEYS, MIN_HEADS = 16, 128, 64  # outside, torch's kernel is as fast; heads of all sentences together


def has_few_queries(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether `attend_few` is the faster choice for q (B, H, T, K), k (B, G, S, K) and v (B, G, S, N)."""
    return (
        not torch.compiler.is_compiling()  # first, so that no size becomes a condition of the compiled code
        and q.device.type == "cpu"
        and 2 <= q.size(2) * q.size(1) // k.size(1) <= MAX_QUERIES
        and k.size(2) <= MAX_KEYS
        and k.size(0) * k.size(1) >= MIN_HEADS
        and all(x.stride(0) == x.size(1) * x.stride(1) for x in (k, v))  # of one batch of matrices, without a copy
        and q.dtype == k.dtype == v.dtype
        and q.dtype in (torch.float32, torch.float64)
        and not (torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v)))
    )


def attend_few(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Compute `attend` for q (B, H, T, K), k (B, G, S, K) and v (B, G, S, N), without dropout.

    mask is added to the scores, or bool with True where a query may attend; it is broadcastable to (B, H, T, S). A
    query that may attend to no key gets zeros. The H/G query heads of a key head are further queries of it.
    """
    B, G, S, K = k.shape
    scores = torch.bmm((q * scale).reshape(B * G, -1, K), k.flatten(0, 1).mT)  # (B·G, H/G·T, S)
    by_head = scores.view(*q.shape[:3], S)
    if mask is None:
        pattern = torch.softmax(scores, dim=-1)
    else:
        hidden = ~mask if mask.dtype == torch.bool else mask == float("-inf")
        if mask.dtype == torch.bool:
            by_head.masked_fill_(hidden, float("-inf"))
        else:
            by_head.add_(mask)
        pattern = torch.softmax(scores, dim=-1)
        pattern.view_as(by_head).masked_fill_(hidden.all(-1, keepdim=True), 0.0)  # softmax made these rows NaN
    return torch.bmm(pattern, v.flatten(0, 1)).view(*q.shape[:3], v.size(-1))

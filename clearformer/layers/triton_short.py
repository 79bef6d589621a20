"""Triton kernels for attention between few positions on CUDA, the forward and the backward pass.

    P = softmax(Q K' · scale + M),  Z = P V
    dV = P' dZ,   dP = dZ V',   dS = P ⊙ (dP − Σ_s P ⊙ dP),   dQ = dS K · scale,   dK = dS' Q · scale

One program has all queries and keys of a row and head in its registers. The backward pass computes P again, so the
forward pass stores nothing but Z. A flash kernel divides queries and keys into blocks of 64 or 128, and computes with
mostly empty blocks if sentences have 10 words.

`attend` and `attend_backward` are the launchers; short_cuda.py makes them differentiable.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from clearformer.layers.short_attention import empty_heads

Sizes = dict[str, int]


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float) -> Tensor:
    """Attend from q (B, H, T, K) to k (B, G, S, K) and v (B, G, S, N); returns (B, H, T, N).

    mask, broadcastable to (B, H, T, S), is added to the scores. A query that may attend to no key gets zeros.
    """
    (B, H, T, _) = q.shape
    z = empty_heads(q, v.size(3))
    added, strides = broadcast(mask, q, k)
    _attend[(B, H)](
        q, k, v, added, z, scale, T, k.size(2), H // k.size(1),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *strides, *z.stride()[:3],
        HAS_MASK=mask is not None, IS_CAUSAL=is_causal, EXACT=q.dtype == torch.float32, **sizes(q, k, v),
    )  # fmt: skip
    return z


def attend_backward(
    dz: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the gradients of q, k and v from dz (B, H, T, N)."""
    dz = dz if dz.stride(3) == 1 else dz.contiguous()
    dq, dk, dv = (empty_heads(x, x.size(3)) for x in (q, k, v))
    added, strides = broadcast(mask, q, k)
    _attend_backward[(q.size(0), k.size(1))](
        q, k, v, added, dz, dq, dk, dv, scale, q.size(2), k.size(2), q.size(1) // k.size(1),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *strides, *dz.stride()[:3],
        *dq.stride()[:3], *dk.stride()[:3], *dv.stride()[:3],
        HAS_MASK=mask is not None, IS_CAUSAL=is_causal, EXACT=q.dtype == torch.float32, **sizes(q, k, v),
    )  # fmt: skip
    return dq, dk, dv


def broadcast(mask: Tensor | None, q: Tensor, k: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """Return the mask and its strides along rows, heads and queries; without a mask, anything."""
    if mask is None:
        return q, (0, 0, 0)
    mask = (mask if mask.stride(-1) == 1 else mask.contiguous()).expand(*q.shape[:3], k.size(2))
    return mask, mask.stride()[:3]


def sizes(q: Tensor, k: Tensor, v: Tensor) -> Sizes:
    """Return the sizes that kernels are compiled for: of the features, of blocks (powers of two), and of a program."""
    (T, K), (S, N) = q.shape[2:], v.shape[2:]
    t, s, a, b = (max(16, triton.next_power_of_2(n)) for n in (T, S, K, N))
    return {"K": K, "N": N, "T_BLOCK": t, "S_BLOCK": s, "K_BLOCK": a, "N_BLOCK": b, "num_warps": max(1, t * s // 1024)}


@triton.jit
def _load(  # type: ignore[no-untyped-def]
    X, at, t_stride, n, n_features, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    t, i = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    is_inside = (t < n)[:, None] & (i < n_features)[None, :]
    return tl.load(X + at + t[:, None] * t_stride + i[None, :], mask=is_inside, other=0.0)


@triton.jit
def _store(  # type: ignore[no-untyped-def]
    X, at, t_stride, n, n_features, x, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    t, i = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    is_inside = (t < n)[:, None] & (i < n_features)[None, :]
    tl.store(X + at + t[:, None] * t_stride + i[None, :], x.to(X.dtype.element_ty), mask=is_inside)


@triton.jit
def _pattern(  # type: ignore[no-untyped-def]
    q, k, MASK, at, m_t, scale, n_queries, n_keys,
    T_BLOCK: tl.constexpr, S_BLOCK: tl.constexpr,
    HAS_MASK: tl.constexpr, IS_CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """softmax(q k' · scale + mask), with rows of zeros where nothing is allowed."""
    t, s = tl.arange(0, T_BLOCK), tl.arange(0, S_BLOCK)
    is_inside = (t < n_queries)[:, None] & (s < n_keys)[None, :]
    if IS_CAUSAL:
        is_inside = is_inside & (s[None, :] <= t[:, None])
    scores = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    if HAS_MASK:
        scores += tl.load(MASK + at + t[:, None] * m_t + s[None, :], mask=is_inside, other=0.0).to(tl.float32)
    scores = tl.where(is_inside, scores, float("-inf"))
    peak = tl.max(scores, 1)
    weights = tl.exp(scores - tl.where(peak == float("-inf"), 0.0, peak)[:, None])
    total = tl.sum(weights, 1)
    return weights / tl.where(total == 0.0, 1.0, total)[:, None]


@triton.jit(do_not_specialize=["n_queries", "n_keys"])
def _attend(  # type: ignore[no-untyped-def]
    Q, KEYS, VALUES, MASK, Z, scale, n_queries, n_keys, group,
    q_b, q_h, q_t, k_b, k_g, k_s, v_b, v_g, v_s, m_b, m_h, m_t, z_b, z_h, z_t,
    K: tl.constexpr, N: tl.constexpr,
    T_BLOCK: tl.constexpr, S_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr,
    HAS_MASK: tl.constexpr, IS_CAUSAL: tl.constexpr, EXACT: tl.constexpr,
) -> None:  # fmt: skip
    b, h = tl.program_id(0).to(tl.int64), tl.program_id(1)
    g = h // group
    precision: tl.constexpr = "ieee" if EXACT else "tf32"
    q = _load(Q, b * q_b + h * q_h, q_t, n_queries, K, T_BLOCK, K_BLOCK)
    k = _load(KEYS, b * k_b + g * k_g, k_s, n_keys, K, S_BLOCK, K_BLOCK)
    v = _load(VALUES, b * v_b + g * v_g, v_s, n_keys, N, S_BLOCK, N_BLOCK)
    p = _pattern(
        q, k, MASK, b * m_b + h * m_h, m_t, scale, n_queries, n_keys, T_BLOCK, S_BLOCK, HAS_MASK, IS_CAUSAL, precision
    )
    z = tl.dot(p.to(v.dtype), v, input_precision=precision)
    _store(Z, b * z_b + h * z_h, z_t, n_queries, N, z, T_BLOCK, N_BLOCK)


@triton.jit(do_not_specialize=["n_queries", "n_keys"])
def _attend_backward(  # type: ignore[no-untyped-def]
    Q, KEYS, VALUES, MASK, DZ, DQ, DK, DV, scale, n_queries, n_keys, group,
    q_b, q_h, q_t, k_b, k_g, k_s, v_b, v_g, v_s, m_b, m_h, m_t, dz_b, dz_h, dz_t,
    dq_b, dq_h, dq_t, dk_b, dk_g, dk_s, dv_b, dv_g, dv_s,
    K: tl.constexpr, N: tl.constexpr,
    T_BLOCK: tl.constexpr, S_BLOCK: tl.constexpr, K_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr,
    HAS_MASK: tl.constexpr, IS_CAUSAL: tl.constexpr, EXACT: tl.constexpr,
) -> None:  # fmt: skip
    b, g = tl.program_id(0).to(tl.int64), tl.program_id(1)
    precision: tl.constexpr = "ieee" if EXACT else "tf32"
    k = _load(KEYS, b * k_b + g * k_g, k_s, n_keys, K, S_BLOCK, K_BLOCK)
    v = _load(VALUES, b * v_b + g * v_g, v_s, n_keys, N, S_BLOCK, N_BLOCK)
    dk, dv = tl.zeros([S_BLOCK, K_BLOCK], tl.float32), tl.zeros([S_BLOCK, N_BLOCK], tl.float32)
    for h in range(g * group, (g + 1) * group):  # the query heads of this key head
        q = _load(Q, b * q_b + h * q_h, q_t, n_queries, K, T_BLOCK, K_BLOCK)
        dz = _load(DZ, b * dz_b + h * dz_h, dz_t, n_queries, N, T_BLOCK, N_BLOCK)
        p = _pattern(
            q, k, MASK, b * m_b + h * m_h, m_t, scale, n_queries, n_keys,
            T_BLOCK, S_BLOCK, HAS_MASK, IS_CAUSAL, precision,
        )  # fmt: skip
        dv += tl.dot(tl.trans(p).to(dz.dtype), dz, input_precision=precision)
        dp = tl.dot(dz, tl.trans(v), input_precision=precision)
        ds = (p * (dp - tl.sum(p * dp, 1)[:, None]) * scale).to(k.dtype)
        _store(DQ, b * dq_b + h * dq_h, dq_t, n_queries, K, tl.dot(ds, k, input_precision=precision), T_BLOCK, K_BLOCK)
        dk += tl.dot(tl.trans(ds), q, input_precision=precision)
    _store(DK, b * dk_b + g * dk_g, dk_s, n_keys, K, dk, S_BLOCK, K_BLOCK)
    _store(DV, b * dv_b + g * dv_g, dv_s, n_keys, N, dv, S_BLOCK, N_BLOCK)

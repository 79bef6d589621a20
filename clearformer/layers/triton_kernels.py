"""Triton kernels for a decoding step on CUDA, whose tensors are small and whose time is the number of kernels.

    attend_few(q, k, v, mask)     softmax(q k' · scale + mask) v       each key and value is read once
    best_and_total(logits)        argmax, and log Σ exp(logits)        a program per row reads the logits once
    write_slots(…)                keys and values into their slots     both at once

A decoding step has one query per hypothesis. The fused kernels of torch are made for many queries, and read unused
slots of a cache too. `torch.logsumexp` writes three tensors of the size of the logits.

Keys whose mask is −∞ for all queries are not read, so that the unused slots of a cache cost nothing. A program attends
for one row and key head, or, if there are more processors than these, to a part of the keys. Partial results are joined
by their peaks m and totals l, as in a flash kernel:  z = Σ_p e^(m_p − m) z_p / Σ_p e^(m_p − m) l_p,  m = max_p m_p.
"""

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64  # keys read at a time
MIN_PART = 256  # keys that are worth a program
COLUMNS = 4096  # logits read at a time


def attend_few(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float) -> Tensor:
    """Attend from q (B, H, T, K), with few queries, to k (B, G, S, K) and v (B, G, S, N); returns (B, H, T, N).

    mask, broadcastable to (B, H, T, S), is added to the scores.
    """
    (B, H, T, K), (G, S), N = q.shape, k.shape[1:3], v.size(3)
    z = q.new_empty(B, T, H, N).transpose(1, 2)
    mask = (mask if mask.stride(-1) == 1 else mask.contiguous()).expand(B, H, T, S)
    rows, n_padded = max(16, triton.next_power_of_2(T * H // G)), max(16, triton.next_power_of_2(N))
    n_parts, part = parts(B * G, S, q.device)
    peaks, totals = (q.new_empty(B, G, n_parts, rows, dtype=torch.float32) for _ in range(2))
    partial = q.new_empty(B, G, n_parts, rows, n_padded, dtype=torch.float32) if n_parts > 1 else peaks
    sizes = {"N": N, "ROWS": rows, "N_PADDED": n_padded}
    _attend_few[(B, G, n_parts)](
        q, k, v, mask, z, peaks, totals, partial, scale, S, part, T, H // G,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *mask.stride()[:3], *z.stride()[:3],
        K=K, K_PADDED=max(16, triton.next_power_of_2(K)), BLOCK=BLOCK, EXACT=q.dtype == torch.float32,
        IS_WHOLE=n_parts == 1, num_warps=4, **sizes,
    )  # fmt: skip
    if n_parts > 1:
        _join_parts[(B, G)](z, peaks, totals, partial, n_parts, T, H // G, *z.stride()[:3], num_warps=4, **sizes)
    return z


def parts(n_heads: int, n_keys: int, device: torch.device) -> tuple[int, int]:
    """Into how many parts the keys are divided, and how many keys a part has, for this number of rows times heads."""
    n = max(1, min(n_processors(device) // n_heads, n_keys // MIN_PART))
    size = BLOCK * triton.cdiv(triton.cdiv(n_keys, n), BLOCK)
    return triton.cdiv(n_keys, size), size


@cache
def n_processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


@triton.jit
def _attend_few(  # type: ignore[no-untyped-def]
    Q, KEYS, VALUES, MASK, Z, PEAKS, TOTALS, PARTIAL, scale, n_keys, part, n_queries, group,
    q_b, q_h, q_t, k_b, k_g, k_s, v_b, v_g, v_s, m_b, m_h, m_t, z_b, z_h, z_t,
    K: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr, K_PADDED: tl.constexpr, N_PADDED: tl.constexpr,
    BLOCK: tl.constexpr, EXACT: tl.constexpr, IS_WHOLE: tl.constexpr,
) -> None:  # fmt: skip
    b, g, p = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    precision: tl.constexpr = "ieee" if EXACT else "tf32"
    rows = tl.arange(0, ROWS)  # query t of head h = g · group + j is row j · n_queries + t
    head, t, is_query = g * group + rows // n_queries, rows % n_queries, rows < group * n_queries
    i, j = tl.arange(0, K_PADDED), tl.arange(0, N_PADDED)
    q_at = Q + b * q_b + head[:, None] * q_h + t[:, None] * q_t + i[None, :]
    q = tl.load(q_at, mask=is_query[:, None] & (i < K)[None, :], other=0.0)
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    total, z = tl.zeros([ROWS], tl.float32), tl.zeros([ROWS, N_PADDED], tl.float32)
    for start in range(p * part, tl.minimum(n_keys, (p + 1) * part), BLOCK):
        s = start + tl.arange(0, BLOCK)
        is_key = s < n_keys
        m_at = MASK + b * m_b + head[:, None] * m_h + t[:, None] * m_t + s[None, :]
        mask = tl.load(m_at, mask=is_query[:, None] & is_key[None, :], other=float("-inf")).to(tl.float32)
        if tl.max(tl.max(mask, 1), 0) > float("-inf"):
            k_at = KEYS + b * k_b + g * k_g + s[:, None] * k_s + i[None, :]
            k = tl.load(k_at, mask=is_key[:, None] & (i < K)[None, :], other=0.0)
            scores = tl.dot(q, tl.trans(k), input_precision=precision) * scale + mask
            new_peak = tl.maximum(peak, tl.max(scores, 1))
            finite = tl.where(new_peak == float("-inf"), 0.0, new_peak)  # a row that may attend to none of these keys
            weights, shrink = tl.exp(scores - finite[:, None]), tl.exp(peak - finite)
            v_at = VALUES + b * v_b + g * v_g + s[:, None] * v_s + j[None, :]
            v = tl.load(v_at, mask=is_key[:, None] & (j < N)[None, :], other=0.0)
            z = z * shrink[:, None] + tl.dot(weights.to(v.dtype), v, input_precision=precision)
            total, peak = total * shrink + tl.sum(weights, 1), new_peak
    if IS_WHOLE:
        z = z / tl.where(total == 0.0, 1.0, total)[:, None]
        z_at = Z + b * z_b + head[:, None] * z_h + t[:, None] * z_t + j[None, :]
        tl.store(z_at, z.to(Z.dtype.element_ty), mask=is_query[:, None] & (j < N)[None, :])
    else:
        at = ((b * tl.num_programs(1) + g) * tl.num_programs(2) + p) * ROWS + rows
        tl.store(PEAKS + at, peak)
        tl.store(TOTALS + at, total)
        tl.store(PARTIAL + at[:, None] * N_PADDED + j[None, :], z)


@triton.jit
def _join_parts(  # type: ignore[no-untyped-def]
    Z, PEAKS, TOTALS, PARTIAL, n_parts, n_queries, group, z_b, z_h, z_t,
    N: tl.constexpr, ROWS: tl.constexpr, N_PADDED: tl.constexpr,
) -> None:  # fmt: skip
    b, g = tl.program_id(0).to(tl.int64), tl.program_id(1)
    rows, j = tl.arange(0, ROWS), tl.arange(0, N_PADDED)
    peak = tl.full([ROWS], float("-inf"), tl.float32)
    total, z = tl.zeros([ROWS], tl.float32), tl.zeros([ROWS, N_PADDED], tl.float32)
    for p in range(n_parts):
        at = ((b * tl.num_programs(1) + g) * n_parts + p) * ROWS + rows
        part_peak, part_total = tl.load(PEAKS + at), tl.load(TOTALS + at)
        part_z = tl.load(PARTIAL + at[:, None] * N_PADDED + j[None, :])
        new_peak = tl.maximum(peak, part_peak)
        finite = tl.where(new_peak == float("-inf"), 0.0, new_peak)
        shrink, part_shrink = tl.exp(peak - finite), tl.exp(part_peak - finite)
        z, total = z * shrink[:, None] + part_z * part_shrink[:, None], total * shrink + part_total * part_shrink
        peak = new_peak
    z = z / tl.where(total == 0.0, 1.0, total)[:, None]
    z_at = Z + b * z_b + (g * group + rows // n_queries)[:, None] * z_h + (rows % n_queries)[:, None] * z_t + j[None, :]
    tl.store(z_at, z.to(Z.dtype.element_ty), mask=(rows < group * n_queries)[:, None] & (j < N)[None, :])


def best_and_total(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the argmax and log Σ exp, in float32, over the last axis: (…, V) -> (…), (…)."""
    rows = logits.flatten(0, -2)
    best = torch.empty(len(rows), dtype=torch.long, device=logits.device)
    total = torch.empty(len(rows), dtype=torch.float32, device=logits.device)
    _best_and_total[(len(rows),)](rows, best, total, rows.stride(0), rows.size(1), BLOCK=COLUMNS, num_warps=8)
    return best.view(logits.shape[:-1]), total.view(logits.shape[:-1])


@triton.jit
def _best_and_total(X, BEST, TOTAL, stride, n, BLOCK: tl.constexpr) -> None:  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    # Each of the BLOCK lanes keeps its own peak, the place of the peak, and sum; they are joined at the end.
    peak, total = tl.full([BLOCK], float("-inf"), tl.float32), tl.zeros([BLOCK], tl.float32)
    place = columns
    for start in range(0, n, BLOCK):
        x = tl.load(X + row * stride + start + columns, mask=start + columns < n, other=float("-inf")).to(tl.float32)
        place = tl.where(x > peak, start + columns, place)
        new_peak = tl.maximum(peak, x)
        finite = tl.where(new_peak == float("-inf"), 0.0, new_peak)
        total = total * tl.exp(peak - finite) + tl.exp(x - finite)
        peak = new_peak
    highest = tl.max(peak, 0)
    tl.store(TOTAL + row, tl.log(tl.sum(total * tl.exp(peak - highest), 0)) + highest)
    tl.store(BEST + row, tl.min(tl.where(peak == highest, place, n), 0).to(tl.int64))  # the first of equal logits


def write_slots(keys: Tensor, values: Tensor, k: Tensor, v: Tensor, places: Tensor) -> None:
    """Copy k (B, G, W, K) and v (B, G, W, N) into the slots `places`, (B·W,), of keys (B, S, G, K) and values."""
    (_, G, W, K), N = k.shape, v.size(3)
    _write_slots[(len(places), G)](
        keys, values, k, v, places, W, *k.stride()[:3], *v.stride()[:3], G * K, G * N,
        K=K, N=N, SIZE=triton.next_power_of_2(max(K, N)), num_warps=1,
    )  # fmt: skip


@triton.jit
def _write_slots(  # type: ignore[no-untyped-def]
    KEYS, VALUES, K_NEW, V_NEW, PLACES, width, k_b, k_g, k_w, v_b, v_g, v_w, key_slot, value_slot,
    K: tl.constexpr, N: tl.constexpr, SIZE: tl.constexpr,
) -> None:  # fmt: skip
    row, g = tl.program_id(0), tl.program_id(1)
    b, w, i = row // width, row % width, tl.arange(0, SIZE)
    place = tl.load(PLACES + row)
    k = tl.load(K_NEW + b * k_b + g * k_g + w * k_w + i, mask=i < K)
    tl.store(KEYS + place * key_slot + g * K + i, k, mask=i < K)
    v = tl.load(V_NEW + b * v_b + g * v_g + w * v_w + i, mask=i < N)
    tl.store(VALUES + place * value_slot + g * N + i, v, mask=i < N)

"""Triton kernels for a decoding step on CUDA, whose tensors are small and whose time is the number of kernels.

    attend_few(q, k, v, mask)     softmax(q k' · scale + mask) v       each key and value is read once
    best_and_total(logits)        argmax, and log Σ exp(logits)        a program per row reads the logits once
    write_slots(…)                keys and values into their slots     both at once
    occupy(…), advance(…)         the bookkeeping of a StaticState     one kernel instead of four or five
    settle(…)                     the bookkeeping of Sampling          one kernel instead of fifteen
    add_and_norm(x, y)            LayerNorm(x + y)                     one kernel instead of two

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
    block, n_warps = tile(B * G * n_parts, S, q.device)
    peaks, totals = (q.new_empty(B, G, n_parts, rows, dtype=torch.float32) for _ in range(2))
    partial = q.new_empty(B, G, n_parts, rows, n_padded, dtype=torch.float32) if n_parts > 1 else peaks
    sizes = {"N": N, "ROWS": rows, "N_PADDED": n_padded}
    _attend_few[(B, G, n_parts)](
        q, k, v, mask, z, peaks, totals, partial, scale, S, part, T, H // G,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *mask.stride()[:3], *z.stride()[:3],
        K=K, K_PADDED=max(16, triton.next_power_of_2(K)), BLOCK=block, EXACT=q.dtype == torch.float32,
        IS_WHOLE=n_parts == 1, num_warps=n_warps, **sizes,
    )  # fmt: skip
    if n_parts > 1:
        _join_parts[(B, G)](z, peaks, totals, partial, n_parts, T, H // G, *z.stride()[:3], num_warps=4, **sizes)
    return z


def parts(n_heads: int, n_keys: int, device: torch.device) -> tuple[int, int]:
    """Into how many parts the keys are divided, and how many keys a part has, for this number of rows times heads."""
    n = max(1, min(n_processors(device) // n_heads, n_keys // MIN_PART))
    size = 64 * triton.cdiv(triton.cdiv(n_keys, n), 64)
    return triton.cdiv(n_keys, size), size


def tile(n_programs: int, n_keys: int, device: torch.device) -> tuple[int, int]:
    """How many keys a program reads at a time, and with how many warps.

    A program alone on its processor is faster with many keys at a time, and many programs if each is small: with 512
    rows, 8 heads and 32 keys, 16 keys and one warp take half of the time of 64 keys and four warps (H200).
    """
    if n_programs <= 2 * n_processors(device):
        return 64, 4
    return (16 if n_keys <= 32 else 32), 1


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
            v_at = VALUES + b * v_b + g * v_g + s[:, None] * v_s + j[None, :]
            v = tl.load(v_at, mask=is_key[:, None] & (j < N)[None, :], other=0.0)
            scores = tl.dot(q, tl.trans(k), input_precision=precision) * scale + mask
            new_peak = tl.maximum(peak, tl.max(scores, 1))
            finite = tl.where(new_peak == float("-inf"), 0.0, new_peak)  # a row that may attend to none of these keys
            weights, shrink = tl.exp(scores - finite[:, None]), tl.exp(peak - finite)
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


def best_and_total(
    logits: Tensor, eos: int = -1, lengths: Tensor | None = None, min_length: int = 0
) -> tuple[Tensor, Tensor]:
    """Compute the argmax and log Σ exp, in float32, over the last axis: (B, W, V) -> (B, W), (B, W).

    EOS is never the argmax of a row whose length, of lengths (B,), is below `min_length`.
    """
    rows = logits.flatten(0, 1)
    best = torch.empty(len(rows), dtype=torch.long, device=logits.device)
    total = torch.empty(len(rows), dtype=torch.float32, device=logits.device)
    _best_and_total[(len(rows),)](
        rows, best, total, rows.stride(0), rows.size(1), best if lengths is None else lengths, logits.size(1), eos,
        min_length, HAS_LENGTHS=lengths is not None, BLOCK=COLUMNS, num_warps=8,
    )  # fmt: skip
    return best.view(logits.shape[:2]), total.view(logits.shape[:2])


@triton.jit
def _best_and_total(  # type: ignore[no-untyped-def]
    X, BEST, TOTAL, stride, n, LENGTHS, width, eos, min_length, HAS_LENGTHS: tl.constexpr, BLOCK: tl.constexpr
) -> None:
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    forbidden = -1
    if HAS_LENGTHS:
        forbidden = tl.where(tl.load(LENGTHS + row // width) < min_length, eos, -1)
    # Each of the BLOCK lanes keeps its own peak, the place of the peak, and sum; they are joined at the end.
    peak, total = tl.full([BLOCK], float("-inf"), tl.float32), tl.zeros([BLOCK], tl.float32)
    best, place = peak, columns
    for start in range(0, n, BLOCK):
        x = tl.load(X + row * stride + start + columns, mask=start + columns < n, other=float("-inf")).to(tl.float32)
        is_better = (x > best) & (start + columns != forbidden)
        best, place = tl.where(is_better, x, best), tl.where(is_better, start + columns, place)
        new_peak = tl.maximum(peak, x)
        finite = tl.where(new_peak == float("-inf"), 0.0, new_peak)
        total = total * tl.exp(peak - finite) + tl.exp(x - finite)
        peak = new_peak
    highest = tl.max(peak, 0)
    tl.store(TOTAL + row, tl.log(tl.sum(total * tl.exp(peak - highest), 0)) + highest)
    is_best = best == tl.max(best, 0)
    tl.store(BEST + row, tl.min(tl.where(is_best, place, n), 0).to(tl.int64))  # the first of equal logits


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


def occupy(used: Tensor, position: Tensor, places: Tensor, slots: Tensor, paths: Tensor) -> None:
    """Occupy the next W slots of each row, whose first `used`, (B,), are in use, for tokens at `position`, (B, 1).

    Writes their indices into places (B·W,), their positions into slots (B, N), and that each token sees itself, of the
    new ones, into paths (B, W, N).
    """
    B, W, N = paths.shape
    _occupy[(B,)](used, position, places, slots, paths, W, N, SIZE=triton.next_power_of_2(W), num_warps=1)


@triton.jit
def _occupy(  # type: ignore[no-untyped-def]
    USED, POSITION, PLACES, SLOTS, PATHS, width, n_slots, SIZE: tl.constexpr
) -> None:
    b, w = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    is_hypothesis, first = w < width, tl.load(USED + b)
    tl.store(PLACES + b * width + w, b * n_slots + first + w, mask=is_hypothesis)
    tl.store(SLOTS + b * n_slots + first + w, tl.load(POSITION + b), mask=is_hypothesis)
    at = PATHS + (b * width + w[:, None]) * n_slots + first + w[None, :]
    tl.store(at, w[:, None] == w[None, :], mask=is_hypothesis[:, None] & is_hypothesis[None, :])


def advance(used: Tensor, position: Tensor, done: Tensor, width: int) -> None:
    """Add `width` to the slots in use and 1 to the position of each row that is not done; all (B,) or (B, 1)."""
    B = len(used)
    _advance[(triton.cdiv(B, 256),)](used, position, done, width, B, BLOCK=256, num_warps=4)


@triton.jit
def _advance(USED, POSITION, DONE, width, n, BLOCK: tl.constexpr) -> None:  # type: ignore[no-untyped-def]
    b = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    is_alive = (b < n) & (tl.load(DONE + b, mask=b < n, other=1) == 0)
    tl.store(USED + b, tl.load(USED + b, mask=is_alive) + width, mask=is_alive)
    tl.store(POSITION + b, tl.load(POSITION + b, mask=is_alive) + 1, mask=is_alive)


def settle(
    best: Tensor, total: Tensor, logits: Tensor, tokens: Tensor, ended: Tensor, done: Tensor, length: Tensor,
    limits: Tensor, history: Tensor, logprobs: Tensor, eos: int,
) -> None:  # fmt: skip
    """Note the chosen tokens `best`, (B, W), in the tensors of a `Sampling` policy; see its method `settle`."""
    B, W, n_places = history.shape
    _settle[(B,)](
        best, total, logits, *logits.stride()[:2], tokens, ended, done, length, limits, history, logprobs, eos, W,
        n_places, SIZE=triton.next_power_of_2(W), num_warps=1,
    )  # fmt: skip


@triton.jit
def _settle(  # type: ignore[no-untyped-def]
    BEST, TOTAL, LOGITS, l_b, l_w, TOKENS, ENDED, DONE, LENGTH, LIMITS, HISTORY, LOGPROBS, eos, width, n_places,
    SIZE: tl.constexpr,
) -> None:  # fmt: skip
    b, w = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    is_sequence, at = w < width, b * width + w
    is_done, length, limit = tl.load(DONE + b) != 0, tl.load(LENGTH + b), tl.load(LIMITS + b)
    has_ended = tl.load(ENDED + at, mask=is_sequence, other=1) != 0
    token = tl.where(has_ended, eos, tl.load(BEST + at, mask=is_sequence, other=0))
    logit = tl.load(LOGITS + b * l_b + w * l_w + token, mask=is_sequence, other=0.0).to(tl.float32)
    logprob = tl.where(has_ended, 0.0, logit - tl.load(TOTAL + at, mask=is_sequence, other=0.0))
    place = at * n_places + tl.where(is_done, n_places - 1, length)
    tl.store(HISTORY + place, token, mask=is_sequence)
    tl.store(LOGPROBS + place, logprob, mask=is_sequence)
    tl.store(TOKENS + at, token, mask=is_sequence)
    has_ended = has_ended | (token == eos)
    tl.store(ENDED + at, has_ended, mask=is_sequence)
    all_ended = tl.min(tl.where(is_sequence, has_ended.to(tl.int32), 1), 0) != 0
    tl.store(LENGTH + b, length + tl.where(is_done, 0, 1))
    tl.store(DONE + b, is_done | all_ended | (length + 1 >= limit))


def add_and_norm(x: Tensor, y: Tensor | None, gain: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    """Compute LayerNorm(x), or LayerNorm(x + y), for x and y (…, D), with sums and moments in float32."""
    D = x.size(-1)
    z = torch.empty_like(x)
    _add_and_norm[(x.numel() // D,)](
        x, x if y is None else y, gain, gain if bias is None else bias, z, eps, D=D, SIZE=triton.next_power_of_2(D),
        HAS_SUM=y is not None, HAS_BIAS=bias is not None, num_warps=min(8, max(1, triton.next_power_of_2(D) // 256)),
    )  # fmt: skip
    return z


@triton.jit
def _add_and_norm(  # type: ignore[no-untyped-def]
    X, Y, GAIN, BIAS, Z, eps, D: tl.constexpr, SIZE: tl.constexpr, HAS_SUM: tl.constexpr, HAS_BIAS: tl.constexpr
) -> None:
    row, i = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    is_feature = i < D
    x = tl.load(X + row * D + i, mask=is_feature, other=0.0).to(tl.float32)
    if HAS_SUM:
        x += tl.load(Y + row * D + i, mask=is_feature, other=0.0).to(tl.float32)
        x = x.to(X.dtype.element_ty).to(tl.float32)  # rounded as a stored sum would be
    centred = tl.where(is_feature, x - tl.sum(x, 0) / D, 0.0)
    z = centred * tl.rsqrt(tl.sum(centred * centred, 0) / D + eps)
    z *= tl.load(GAIN + i, mask=is_feature, other=0.0).to(tl.float32)
    if HAS_BIAS:
        z += tl.load(BIAS + i, mask=is_feature, other=0.0).to(tl.float32)
    tl.store(Z + row * D + i, z.to(Z.dtype.element_ty), mask=is_feature)

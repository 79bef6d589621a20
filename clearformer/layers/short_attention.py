"""Attention between few positions, for training on the CPU: two batched products, with the gradient written out.

    P = softmax(Q K' · scale),  Z = P V
    dV = P' dZ,   dP = dZ V',   dS = P ⊙ (dP − Σ_s P ⊙ dP),   dQ = dS K · scale,   dK = dS' Q · scale

A flash kernel avoids writing P to memory, by computing it block by block, and a second time for the gradient. Between
10 positions P is smaller than Q, and the blocks cost more than the arithmetic. Keeping P takes about 70 % of the time
of torch's kernel at 10 positions, 90 % at 20 and 105 % at 24 (one core, 4 heads of width 32).
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

MAX_POSITIONS = 20  # with more, torch's kernel is as fast


def is_short(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether `attend_short` is the faster choice for q (B, H, T, K), k (B, G, S, K) and v (B, G, S, N)."""
    return (
        not torch.compiler.is_compiling()  # first, so that no size becomes a condition of the compiled code
        and q.device.type == "cpu"
        and torch.is_grad_enabled()
        and (q.requires_grad or k.requires_grad or v.requires_grad)
        and max(q.size(2), k.size(2)) <= MAX_POSITIONS
        and q.size(1) == k.size(1)
        and q.dtype == k.dtype == v.dtype
        and q.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled("cpu")
    )


def attend_short(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float | None) -> Tensor:
    """Compute `attend` for q (B, H, T, K), k (B, H, S, K) and v (B, H, S, N), without bias and dropout.

    mask is bool, broadcastable to (B, H, T, S), True may attend. A query that may attend to no key gets zeros.
    """
    z: Tensor = ShortAttention.apply(q, k, v, mask, q.size(-1) ** -0.5 if scale is None else scale)
    return z


class ShortAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float) -> Tensor:
        rows = q.shape[:2]  # (B, H)
        q, k, v = (x.flatten(0, 1) for x in (q, k, v))  # (B·H, T or S, K or N)
        scores = torch.bmm(q, k.mT).mul_(scale).unflatten(0, rows)  # (B, H, T, S)
        if mask is not None:
            # The lowest finite number, not −∞, which would make a row without any allowed key NaN.
            scores.masked_fill_(~mask, torch.finfo(scores.dtype).min)
        pattern = torch.softmax(scores, dim=-1)
        if mask is not None:
            pattern.masked_fill_(~mask, 0.0)
        pattern = pattern.flatten(0, 1)  # (B·H, T, S)
        ctx.save_for_backward(q, k, v, pattern)
        ctx.scale = scale
        return torch.bmm(pattern, v).unflatten(0, rows)  # (B, H, T, N)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dz: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, pattern = ctx.saved_tensors
        rows, dz = dz.shape[:2], dz.flatten(0, 1)  # (B·H, T, N)
        dv = torch.bmm(pattern.mT, dz)
        dp = torch.bmm(dz, v.mT)
        ds = torch._softmax_backward_data(dp, pattern, -1, pattern.dtype).mul_(ctx.scale)
        gradients = torch.bmm(ds, k), torch.bmm(ds.mT, q), dv
        return *(x.unflatten(0, rows) for x in gradients), None, None


def empty_heads(x: Tensor, width: int) -> Tensor:
    """Return an uninitialised (B, H, T, width) for x (B, H, T, K), in which the heads of a position are adjacent."""
    B, H, T, _ = x.shape
    return x.new_empty(B, T, H, width).transpose(1, 2)

"""Attention between few positions on CUDA: the kernels of triton_short.py as a differentiable operation of torch.

Short sentences in large batches are most of the training of a translator. On an H200, torch's kernels took more than a
third of a training step of transformer-base on sentences of 16 tokens; these take a fraction of it.

The operations are registered with torch, because torch.compile cannot look into a launcher of Triton kernels with
blocks that depend on the shape: it sees one operation, its result and its gradient.
"""

from typing import Any

import torch
from torch import Tensor

from clearformer.layers.short_attention import empty_heads

MAX_POSITIONS = 64  # with more, torch's kernels are as fast
MAX_FEATURES = 128  # of a head


def is_short(q: Tensor, k: Tensor, v: Tensor, mask: Any, dropout: float) -> bool:
    """Whether `attend_short` can compute the attention of q (B, H, T, K) to k (B, G, S, K) and v (B, G, S, N).

    mask is None, True for causal, or a tensor that is added to the scores.
    """
    is_number = isinstance(mask, Tensor)
    return (
        q.is_cuda
        and dropout == 0
        and q.size(2) <= MAX_POSITIONS
        and k.size(2) <= MAX_POSITIONS
        and q.size(3) <= MAX_FEATURES
        and v.size(3) <= MAX_FEATURES
        and q.dtype == k.dtype == v.dtype
        and q.dtype in (torch.float32, torch.float16, torch.bfloat16)
        and all(x.stride(3) == 1 for x in (q, k, v))
        and (mask is None or mask is True or (is_number and mask.dtype == q.dtype and not mask.requires_grad))
    )


def attend_short(q: Tensor, k: Tensor, v: Tensor, mask: Any, scale: float) -> Tensor:
    """Attend from q to k and v, for arguments that `is_short` accepts; returns (B, H, T, N).

    A query that may attend to no key gets zeros.
    """
    z: Tensor = forward(q, k, v, None if mask is True else mask, mask is True, scale)
    return z


@torch.library.custom_op("clearformer::attend_short", mutates_args=())
def forward(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float) -> Tensor:
    from clearformer.layers import triton_short

    return triton_short.attend(q, k, v, mask, is_causal, scale)


@torch.library.custom_op("clearformer::attend_short_backward", mutates_args=())
def backward(
    dz: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    from clearformer.layers import triton_short

    return triton_short.attend_backward(dz, q, k, v, mask, is_causal, scale)


@forward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float) -> Tensor:
    return empty_heads(q, v.size(3))


@backward.register_fake
def _(
    dz: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    return empty_heads(q, q.size(3)), empty_heads(k, k.size(3)), empty_heads(v, v.size(3))


def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    q, k, v, mask, ctx.is_causal, ctx.scale = inputs
    ctx.save_for_backward(q, k, v, mask)


def differentiate(ctx: Any, dz: Tensor) -> tuple[Tensor | None, ...]:
    return *backward(dz, *ctx.saved_tensors, ctx.is_causal, ctx.scale), None, None, None


forward.register_autograd(differentiate, setup_context=keep)

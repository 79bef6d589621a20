"""Scaled dot-product attention, and the multi-head layer around it.

    Attention(Q, K, V) = softmax(Q K' / √d_k) V                               Vaswani et al. 2017, eq. 1
    MultiHead(X, M)    = Concat(head_1 … head_h) W_out,   head_i = Attention(X Wq_i, M Wk_i, M Wv_i)

`attend` is the equation in plain torch. The layer computes with a core of the same signature, chosen when the model
is built: the equation itself, a fused kernel, or a core that also records the attention pattern (backends.py).
"""

from math import sqrt
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearformer.layers.cache import KeyValues, KVCache
from clearformer.layers.linear import Linear
from clearformer.layers.masks import Mask
from clearformer.layers.positions import Rotation, rotate


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Mix the values by how well their keys match each query.

        z = softmax(q k' · scale + bias) v,  scale = 1/√K unless given           Vaswani et al. 2017, eq. 1

    q (B, H, T, K); k (B, G, S, K); v (B, G, S, N) -> (B, H, T, N). Scores are divided by √K because a sum of K
    products of independent unit-variance features has variance K, and a softmax over large scores has a vanishing
    gradient.
    """
    scale = 1 / sqrt(q.size(-1)) if scale is None else scale
    weights = F.dropout(pattern(q, k, mask, bias, scale), dropout)
    return weights.to(v.dtype) @ repeat_heads(v, q.size(1))


def pattern(q: Tensor, k: Tensor, mask: Tensor | None, bias: Tensor | None, scale: float) -> Tensor:
    """How much each query attends to each key: softmax(q k' · scale + bias), whose rows sum to one.

    q (B, H, T, K); k (B, G, S, K) with G dividing H; mask bool, broadcastable to (B, 1, T, S), True may attend;
    bias broadcastable to (B, H, T, S). Returns (B, H, T, S). A query that may attend to no key gets a row of zeros
    rather than NaN, since padded rows are common.
    """
    return normalise(match(q, k, bias, scale), mask)


def match(q: Tensor, k: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    """Return the scores q k' · scale + bias, (B, H, T, S), which the softmax turns into a pattern."""
    k = repeat_heads(k, q.size(1))
    # Scores in float32 at least: in float16 a sum of K = 128 products can exceed 65504 and become infinite.
    exact = torch.promote_types(q.dtype, torch.float32)
    scores = q.to(exact) @ k.mT.to(exact) * scale
    return scores if bias is None else scores + bias


def normalise(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return the softmax of scores (B, H, T, S) over the keys that the mask allows."""
    if mask is None:
        return torch.softmax(scores, dim=-1)
    # The lowest finite number, not −∞: in a row without any allowed key, −∞ would turn the gradient into NaN.
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return torch.softmax(scores, dim=-1).masked_fill(~mask, 0.0)


def repeat_heads(x: Tensor, n_heads: int) -> Tensor:
    """Repeat each key or value head for its H/G query heads: (B, G, S, K) -> (B, H, S, K)."""
    return x if x.size(1) == n_heads else x.repeat_interleave(n_heads // x.size(1), dim=1)


def contextualise(embeddings: Tensor) -> Tensor:
    """Attention without parameters: every word becomes a mixture of the words it resembles.

        softmax(E E') E                        E (…, T, D) -> (…, T, D)

    The course notes start from this form. Without learnt matrices, the same vector must serve as query, key and value.
    """
    return torch.softmax(embeddings @ embeddings.mT, dim=-1) @ embeddings


class Core(Protocol):
    def lower(self, mask: Mask | None, T: int, S: int, device: torch.device, dtype: torch.dtype | None = None) -> Any:
        """Return `mask` in the form that this core computes with, on the `device` of the queries.

        A stack calls this once per core and forward pass; layers with the same core receive the same result. `dtype` is
        the dtype of the queries, for cores whose masks are numbers.
        """

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Any, bias: Tensor | None, scale: float | None, dropout: float
    ) -> Tensor: ...


class PlainCore:
    """The equation itself: slow, clear, exportable, and the reference for every other core."""

    def lower(
        self, mask: Mask | None, T: int, S: int, device: torch.device, dtype: torch.dtype | None = None
    ) -> Tensor | None:
        return None if mask is None else mask.dense(T, S, device)

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Any, bias: Tensor | None, scale: float | None, dropout: float
    ) -> Tensor:
        return attend(q, k, v, mask, bias, scale, dropout)


class MultiHeadAttention(nn.Module):
    """H query heads, each in its own K-dimensional subspace, attend to G heads of keys and values.

    x (B, T, D) attends to itself, or to `memory` (B, S, D) if given: that is the only difference between self- and
    cross-attention. G = H is the paper's layer. With G < H, each key head serves H/G query heads (grouped-query
    attention). The width N of the values may differ from the width K of the keys.

    The three input projections are rows of one matrix, so that self-attention needs a single product:
    qkv.weight = [Wq (H·K rows); Wk (G·K rows); Wv (G·N rows)].
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_kv_heads: int | None = None,
        d_head: int | None = None,
        d_value: int | None = None,
        bias: bool = True,
        scale: float | None = None,
        dropout: float = 0.0,
        core: Core | None = None,
    ) -> None:
        super().__init__()
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads or n_heads
        self.d_head = d_head or d_model // n_heads
        self.d_value = d_value or self.d_head
        self.scale = 1 / sqrt(self.d_head) if scale is None else scale
        self.dropout = dropout
        self.core = core or PlainCore()
        self.rows = (n_heads * self.d_head, self.n_kv_heads * self.d_head, self.n_kv_heads * self.d_value)
        self.qkv = Linear(d_model, sum(self.rows), bias)
        self.out = nn.Linear(n_heads * self.d_value, d_model, bias)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | KeyValues | None = None,
        mask: Any = None,
        bias: Tensor | None = None,
        rotation: Rotation | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Attend from x (B, T, D) to itself or to `memory`; returns (B, T, D).

        `mask` is a result of `core.lower`, and `memory` may be a result of `remember`.
        """
        if memory is None:
            q, k, v = self.split(self.qkv(x))
            if rotation is not None:
                q, k = rotate(q, rotation), rotate(k, rotation)
            if cache is not None:
                k, v = cache.append(k, v)
        else:
            q = self.heads(self.qkv.part(x, 0, self.rows[0]), self.n_heads)
            k, v = memory if isinstance(memory, tuple) else self.remember(memory)
        z = self.core(q, k, v, mask, bias, self.scale, self.dropout if self.training else 0.0)  # (B, H, T, N)
        return self.out(z.transpose(1, 2).flatten(2))  # (B, T, D)

    def remember(self, memory: Tensor) -> KeyValues:
        """Return the keys and values of `memory` (B, S, D), computed once and used at every decoding step."""
        kv = self.qkv.part(memory, self.rows[0], sum(self.rows))
        k, v = kv.split(self.rows[1:], dim=-1)
        return self.heads(k, self.n_kv_heads), self.heads(v, self.n_kv_heads)

    def split(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = qkv.split(self.rows, dim=-1)
        return self.heads(q, self.n_heads), self.heads(k, self.n_kv_heads), self.heads(v, self.n_kv_heads)

    @staticmethod
    def heads(x: Tensor, n: int) -> Tensor:
        return x.unflatten(-1, (n, -1)).transpose(1, 2)  # (B, T, n·K) -> (B, n, T, K)

"""Cross-entropy with optional label smoothing: the loss of all objectives that predict tokens.

    loss = − Σ_t Σ_v q_t(v) log p_t(v),    q_t = (1 − ε) [v = y_t] + ε / V                Szegedy et al. 2016

The result is a sum and a count, never a mean: batches hold different numbers of tokens, and a mean of means would
give tokens in small batches more weight.

The logits of a long text can need more memory than the rest of the model, V values per position. `token_loss` can
compute them for a chunk of positions at a time, in the forward and again in the backward pass.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from clearformer.data.batch import IGNORE


class Loss(NamedTuple):
    total: Tensor  # (), summed over the counted tokens, natural log
    n_tokens: int


def smoothed_cross_entropy(logits: Tensor, labels: Tensor, epsilon: float) -> Tensor:
    """Sum the loss over all tokens: logits (…, V), labels (…) with IGNORE where nothing is predicted -> ().

    Computed in float32 or better: half precision is too coarse for the logarithm of a sum over V tokens.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(0, -2)
    return F.cross_entropy(logits, labels.flatten(), ignore_index=IGNORE, reduction="sum", label_smoothing=epsilon)


def token_loss(
    head: Callable[[Tensor], Tensor], hidden: Tensor, labels: Tensor, epsilon: float = 0.0, chunk: int | None = None
) -> Tensor:
    """Sum the loss of the logits head(hidden): hidden (…, D), labels (…) -> ().

        loss = Σ_c loss(head(hidden_c), labels_c)            c over chunks of `chunk` positions

    Without `chunk`, all logits are computed at once. With it, no logits are stored for the backward pass, which
    computes those of one chunk after the other.
    """

    def loss(hidden: Tensor, labels: Tensor) -> Tensor:
        return smoothed_cross_entropy(head(hidden), labels, epsilon)

    def loss_of_chunk(hidden: Tensor, labels: Tensor) -> Tensor:
        # Without the cache of autocast: its copy of the weights would sum the gradients of all chunks in bfloat16.
        kind = hidden.device.type
        dtype, is_enabled = torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)
        with torch.autocast(kind, dtype, is_enabled, cache_enabled=False):
            return loss(hidden, labels)

    if chunk is None:
        return loss(hidden, labels)
    if labels.numel() <= chunk:
        return checkpoint(loss, hidden, labels, use_reentrant=False)
    parts = zip(hidden.flatten(0, -2).split(chunk), labels.flatten().split(chunk))
    return torch.stack([checkpoint(loss_of_chunk, h[None], y[None], use_reentrant=False) for h, y in parts]).sum()

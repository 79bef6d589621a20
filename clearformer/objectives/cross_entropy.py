"""Cross-entropy with optional label smoothing: the loss of all objectives that predict tokens.

    loss = − Σ_t Σ_v q_t(v) log p_t(v),    q_t = (1 − ε) [v = y_t] + ε / V                Szegedy et al. 2016

The result is a sum and a count, never a mean: batches hold different numbers of tokens, and a mean of means would
give tokens in small batches more weight.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from clearformer.data.batch import IGNORE


class Loss(NamedTuple):
    total: Tensor  # (), summed over the counted tokens, natural log
    n_tokens: int


def smoothed_cross_entropy(logits: Tensor, labels: Tensor, epsilon: float) -> Tensor:
    """Sum the loss over all tokens: logits (B, T, V), labels (B, T) with IGNORE where nothing is predicted -> ().

    Computed in float32 or better: half precision is too coarse for the logarithm of a sum over V tokens.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(0, 1)
    return F.cross_entropy(logits, labels.flatten(), ignore_index=IGNORE, reduction="sum", label_smoothing=epsilon)

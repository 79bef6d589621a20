"""Translation: predict each target word from the source and the words before it.

    loss = − Σ_t Σ_v q_t(v) log p(v | y_<t, x),    q_t = (1 − ε) [v = y_t] + ε / V        Szegedy et al. 2016

With ε = 0 it is the plain cross-entropy. The result is a sum and a count, never a mean: batches hold different
numbers of tokens, and a mean of means favours short ones.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from clearformer.config import Config
from clearformer.data.batch import IGNORE, Batch


class Loss(NamedTuple):
    total: Tensor  # (), summed over the counted tokens, natural log
    n_tokens: int


class TranslationConfig(Config):
    """[objective]"""

    kind: str = "translation"
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="ε, the share given to all words alike")


class Translation:
    Config = TranslationConfig
    task = "translation"

    def __init__(self, config: TranslationConfig) -> None:
        self.config = config

    def __call__(self, model: nn.Module, batch: Batch) -> Loss:
        hidden = model.hidden(batch)  # type: ignore[operator]
        total = smoothed_cross_entropy(model.head(hidden), batch.labels, self.config.label_smoothing)  # type: ignore[operator]
        return Loss(total, batch.n_tokens)


def smoothed_cross_entropy(logits: Tensor, labels: Tensor, epsilon: float) -> Tensor:
    """logits (B, T, V), labels (B, T) with IGNORE where nothing is predicted -> () the sum.

    In float32 at least: the logarithm of a sum over V words is where half precision would tell.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(0, 1)
    return F.cross_entropy(logits, labels.flatten(), ignore_index=IGNORE, reduction="sum", label_smoothing=epsilon)

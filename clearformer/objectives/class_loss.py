"""The loss of a classifier, and its settings.

    loss = − Σ_i w(y_i) Σ_k q_i(k) log softmax(z_i)_k,    q = (1 − ε) y + ε / C    y is one-hot, or a mixture

w(k) is the weight of class k, 1 by default (class_weights.py). A prior adds log π to z instead (class_prior.py). The
sum is later divided by the number of examples, not by the sum of their weights: if the mean weight over the data is 1,
the loss stays comparable.
"""

from typing import Self

import torch
import torch.nn.functional as F
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from clearformer.config import Config
from clearformer.data.batch import IGNORE
from clearformer.objectives import class_prior, class_weights
from clearformer.objectives.class_prior import Prior, adjusted_cross_entropy
from clearformer.objectives.class_weights import ClassWeights, weight_tensor, weighted_cross_entropy


class ClassLossConfig(Config):
    """The settings of [objective] that all classifiers have."""

    kind: str
    weights: ClassWeights | None = Field(None, description=class_weights.DESCRIPTION)
    prior: Prior | None = Field(None, description=class_prior.DESCRIPTION)
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="label smoothing ε: probability spread over all classes, evenly or by the prior"
    )

    _weights = field_validator("weights", mode="before")(class_weights.parse_weights)
    _prior = field_validator("prior", mode="before")(class_prior.parse_prior)

    @model_validator(mode="after")
    def _one_remedy(self) -> Self:
        if self.weights is not None and self.prior is not None:
            raise ValueError("weights and prior cannot be combined; remove one of them")
        return self


def class_loss(logits: Tensor, targets: Tensor, config: ClassLossConfig) -> Tensor:
    """Sum the loss over examples: logits (N, C), targets (N,) with IGNORE, or (N, C) if mixed -> ().

    Computed in float32 or better.
    """
    logits, epsilon = logits.to(torch.promote_types(logits.dtype, torch.float32)), config.label_smoothing
    targets = targets.to(logits.dtype) if targets.is_floating_point() else targets
    if config.prior is not None:
        return adjusted_cross_entropy(logits, targets, config.prior, epsilon)
    if config.weights is not None:
        return weighted_cross_entropy(logits, targets, weight_tensor(config.weights, logits), epsilon)
    return F.cross_entropy(logits, targets, ignore_index=IGNORE, reduction="sum", label_smoothing=epsilon)

"""Classification of texts or words, or regression if the model has a single output.

    classes    loss = − Σ_i w(y_i) Σ_k q_i(k) log p(k | x_i)       i over texts, or over labelled positions
    values     loss = Σ_i (ŷ_i − y_i)²                             i over texts, or over labelled positions

q_i = (1 − ε) [k = y_i] + ε / C is the target with label smoothing ε, 0 by default. w(k) is the weight of class k, 1 by
default (class_weights.py). The sum is later divided by the number of examples, not by the sum of their weights: if the
mean weight over the data is 1, the loss stays comparable.
"""

import torch
import torch.nn.functional as F
from pydantic import Field, field_validator
from torch import nn

from clearformer.config import Config
from clearformer.data.batch import IGNORE, EncoderBatch
from clearformer.objectives.class_weights import (
    DESCRIPTION,
    ClassWeights,
    parse_weights,
    weight_tensor,
    weighted_cross_entropy,
)
from clearformer.objectives.cross_entropy import Loss


class ClassificationConfig(Config):
    """The [objective] table of a recipe: settings of classification."""

    kind: str = "classification"
    weights: ClassWeights | None = Field(None, description=DESCRIPTION)
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="label smoothing ε: probability spread evenly over all classes"
    )

    _weights = field_validator("weights", mode="before")(parse_weights)


class Classification:
    """The loss is summed over positions if the batch has labels (B, T), otherwise over texts, with classes (B,)."""

    Config = ClassificationConfig
    task = "classification"

    def __init__(self, config: ClassificationConfig) -> None:
        self.config = config

    def __call__(self, model: nn.Module, batch: EncoderBatch) -> Loss:
        logits = model.head(model.hidden(batch))  # type: ignore[operator]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))  # (B, C) or (B, T, C)
        targets = batch.classes if batch.labels is None else batch.labels
        assert targets is not None, "training needs labels"
        if logits.size(-1) == 1:
            error = (logits[..., 0] - targets).flatten()
            return Loss((error if batch.labels is None else error[batch.labelled]).square().sum(), batch.n_tokens)
        logits, targets, epsilon = logits.flatten(0, -2), targets.flatten(), self.config.label_smoothing
        if self.config.weights is not None:
            weights = weight_tensor(self.config.weights, logits)
            return Loss(weighted_cross_entropy(logits, targets, weights, epsilon), batch.n_tokens)
        total = F.cross_entropy(logits, targets, ignore_index=IGNORE, reduction="sum", label_smoothing=epsilon)
        return Loss(total, batch.n_tokens)


class TokenClassificationConfig(ClassificationConfig):
    """The [objective] table of a recipe: settings of tagging."""

    kind: str = "token-classification"


class TokenClassification(Classification):
    """Classification of words: the loss of `Classification`, on batches that have labels (B, T)."""

    Config = TokenClassificationConfig
    task = "token-classification"

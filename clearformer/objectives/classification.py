"""Classification of texts or words, or regression if the model has a single output.

    classes    loss = − Σ_i w(y_i) Σ_k q_i(k) log p(k | x_i)       i over texts, or over labelled positions
    values     loss = Σ_i (ŷ_i − y_i)²                             i over texts, or over labelled positions

class_loss.py defines the loss of classes.
"""

import torch
from torch import nn

from clearformer.data.batch import EncoderBatch
from clearformer.objectives.class_loss import ClassLossConfig, class_loss
from clearformer.objectives.cross_entropy import Loss


class ClassificationConfig(ClassLossConfig):
    """The [objective] table of a recipe: settings of classification."""

    kind: str = "classification"


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
        return Loss(class_loss(logits.flatten(0, -2), targets.flatten(), self.config), batch.n_tokens)


class TokenClassificationConfig(ClassificationConfig):
    """The [objective] table of a recipe: settings of tagging."""

    kind: str = "token-classification"


class TokenClassification(Classification):
    """Classification of words: the loss of `Classification`, on batches that have labels (B, T)."""

    Config = TokenClassificationConfig
    task = "token-classification"

"""Image classification.

    loss = − Σ_i w(y_i) Σ_k q_i(k) log p(k | x_i),    q = (1 − ε) y + ε / K    y is one-hot, or mixed (augment/mixup.py)

w is the weight of the image's class, 1 by default (class_weights.py).

Images arrive as bytes. They are normalised here, on the device, and in training also augmented. If the model has
auxiliary classifiers, as GoogLeNet has, 0.3 times the loss of each is added in training (Szegedy et al. 2015).
"""

import torch
import torch.nn.functional as F
from pydantic import Field, field_validator
from torch import Tensor, nn

from clearformer.config import Config
from clearformer.data.augment.mixup import mixup
from clearformer.data.batch import ImageBatch
from clearformer.data.pixels import ImageConfig
from clearformer.objectives.class_weights import (
    DESCRIPTION,
    ClassWeights,
    parse_weights,
    weight_tensor,
    weighted_cross_entropy,
)
from clearformer.objectives.cross_entropy import Loss


class ImageClassificationConfig(Config):
    """The [objective] table of a recipe: settings of image classification."""

    kind: str = "image-classification"
    weights: ClassWeights | None = Field(None, description=DESCRIPTION)
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="label smoothing ε: probability spread evenly over all classes"
    )
    auxiliary: float = Field(0.3, ge=0, description="weight of each auxiliary classifier in the loss")

    _weights = field_validator("weights", mode="before")(parse_weights)


class ImageClassification:
    Config = ImageClassificationConfig
    task = "image-classification"
    tables = ("image",)

    def __init__(self, config: ImageClassificationConfig, image: ImageConfig | None = None) -> None:
        self.config, self.image = config, image or ImageConfig()

    def __call__(self, model: nn.Module, batch: ImageBatch) -> Loss:
        assert batch.classes is not None, "training needs labels"
        pixels = self.image.ready(batch.pixels, next(model.parameters()).dtype, model.training)
        n_classes = int(model.config.n_classes)  # type: ignore[union-attr, arg-type]
        targets = F.one_hot(batch.classes, n_classes).to(pixels.dtype)  # (B, K)
        if model.training and (alpha := self.image.augment.mixup):
            pixels, targets = mixup(pixels, targets, alpha)
        inputs = ImageBatch(pixels, n_tokens=batch.n_tokens)
        if model.training and hasattr(model, "answers"):
            logits, *auxiliary = model.answers(inputs)  # type: ignore[operator]
        else:
            logits, auxiliary = model.head(model.hidden(inputs)), []  # type: ignore[operator]
        total = self.cross_entropy(logits, targets)
        for more in auxiliary:
            total = total + self.config.auxiliary * self.cross_entropy(more, targets)
        return Loss(total, batch.n_tokens)

    def cross_entropy(self, logits: Tensor, targets: Tensor) -> Tensor:
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        targets, epsilon = targets.to(logits.dtype), self.config.label_smoothing
        if self.config.weights is not None:
            return weighted_cross_entropy(logits, targets, weight_tensor(self.config.weights, logits), epsilon)
        return F.cross_entropy(logits, targets, reduction="sum", label_smoothing=epsilon)

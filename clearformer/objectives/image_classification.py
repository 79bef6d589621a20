"""Image classification.

    loss = − Σ_i w(y_i) Σ_k q_i(k) log p(k | x_i),    q = (1 − ε) y + ε / K    y is one-hot, or mixed (augment/mixup.py)

class_loss.py computes this loss, with the weights w or with a prior for classes out of balance.

Images arrive as bytes. They are normalised here, on the device, and in training also augmented. If the model has
auxiliary classifiers, as GoogLeNet has, 0.3 times the loss of each is added in training (Szegedy et al. 2015).
"""

import torch.nn.functional as F
from pydantic import Field
from torch import nn

from clearformer.data.augment.mixup import mixup
from clearformer.data.batch import ImageBatch
from clearformer.data.pixels import ImageConfig
from clearformer.objectives.class_loss import ClassLossConfig, class_loss
from clearformer.objectives.cross_entropy import Loss


class ImageClassificationConfig(ClassLossConfig):
    """The [objective] table of a recipe: settings of image classification."""

    kind: str = "image-classification"
    auxiliary: float = Field(0.3, ge=0, description="weight of each auxiliary classifier in the loss")


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
        total = class_loss(logits, targets, self.config)
        for more in auxiliary:
            total = total + self.config.auxiliary * class_loss(more, targets, self.config)
        return Loss(total, batch.n_tokens)

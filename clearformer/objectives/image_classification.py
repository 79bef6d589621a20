"""Say what a picture shows.

    loss = − Σ_i Σ_k q_i(k) log p(k | x_i),    q = (1 − ε) y + ε / K        y is 1 at the class, or mixed (mixup.py)

Pictures come as bytes, and are augmented, in training, and normalised here, on the device. A model that gives several
`answers` while it learns, as GoogLeNet does, adds 0.3 of the loss of each further one (Szegedy et al. 2015).
"""

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from clearformer.config import Config
from clearformer.data.augment.mixup import mixup
from clearformer.data.batch import ImageBatch
from clearformer.data.pixels import ImageConfig
from clearformer.objectives.cross_entropy import Loss


class ImageClassificationConfig(Config):
    """[objective]"""

    kind: str = "image-classification"
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="ε, the share given to all classes alike")
    auxiliary: float = Field(0.3, ge=0, description="weight of the loss of each answer but the first")


class ImageClassification:
    Config = ImageClassificationConfig
    task = "image-classification"
    tables = ("image",)

    def __init__(self, config: ImageClassificationConfig, image: ImageConfig | None = None) -> None:
        self.config, self.image = config, image or ImageConfig()

    def __call__(self, model: nn.Module, batch: ImageBatch) -> Loss:
        assert batch.classes is not None, "a batch to learn from says what is right"
        pixels = self.image.ready(batch.pixels, next(model.parameters()).dtype, model.training)
        n_classes = int(model.config.n_classes)  # type: ignore[union-attr, arg-type]
        answers = F.one_hot(batch.classes, n_classes).to(pixels.dtype)  # (B, K)
        if model.training and (alpha := self.image.augment.mixup):
            pixels, answers = mixup(pixels, answers, alpha)
        ready = ImageBatch(pixels, n_tokens=batch.n_tokens)
        if model.training and hasattr(model, "answers"):
            scores, *others = model.answers(ready)  # type: ignore[operator]
        else:
            scores, others = model.head(model.hidden(ready)), []  # type: ignore[operator]
        total = self.entropy(scores, answers)
        for other in others:
            total = total + self.config.auxiliary * self.entropy(other, answers)
        return Loss(total, batch.n_tokens)

    def entropy(self, scores: Tensor, answers: Tensor) -> Tensor:
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        return F.cross_entropy(
            scores, answers.to(scores.dtype), reduction="sum", label_smoothing=self.config.label_smoothing
        )

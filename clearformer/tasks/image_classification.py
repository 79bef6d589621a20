"""The image-classification task, evaluated by accuracy."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clearformer.data.images import ImageCorpora
from clearformer.data.labels import number_classes
from clearformer.errors import DataError
from clearformer.evaluation.labels import image_metrics
from clearformer.handles.image_classifier import ImageClassifier
from clearformer.handles.image_model import read_pixels
from clearformer.metric import ACCURACY, LOSS, Metric
from clearformer.objectives.image_classification import ImageClassification
from clearformer.tables import Tables
from clearformer.tasks.images import ImageTask, image_table
from clearformer.tasks.task import Pretrained

TOP5 = Metric("top5", "Top-5 accuracy")


class ImageClassificationTask(ImageTask):
    data = ImageCorpora
    objective = ImageClassification

    @classmethod
    def metrics(cls, recipe: Tables) -> tuple[Metric, ...]:
        return ACCURACY, TOP5, LOSS

    def read_classes(self) -> list[str]:
        source = self.recipe.data.source("train")
        classes: list[str] = source.classes()
        if len(classes) < 2:
            raise DataError(
                f"{source.path}: all images are of one class, `{classes[0]}`",
                "a classifier needs at least two classes; in a folder, each class has its own subfolder",
            )
        return classes

    def settle(self) -> Tables:
        return super().settle().with_model(n_classes=len(self.classes or []))

    def score(self, model: nn.Module, split: str) -> dict[str, Any]:
        store = self.split(split).store
        logits = read_pixels(model, store.pixels, self.image, next(model.parameters()))
        return image_metrics(logits, torch.from_numpy(store.classes))

    @classmethod
    def handle(cls, model: Pretrained) -> ImageClassifier:
        return cls.encoder(model, False)

    @classmethod
    def encoder(cls, model: Pretrained, unit: bool | None) -> ImageClassifier:
        return ImageClassifier(model.network, image_table(model), model.classes or [], model.name, bool(unit))

    @classmethod
    def measure(cls, model: Pretrained) -> Callable[[np.ndarray], Tensor]:
        return cls.handle(model).logits

    @classmethod
    def summarise(cls, measured: Tensor, labels: Sequence[str], classes: Sequence[str], where: str) -> dict[str, Any]:
        """Return loss, accuracy, top5, macro_f1, matthews, confusion, images and classes."""
        indices = torch.from_numpy(number_classes(labels, classes, where))
        return image_metrics(measured, indices) | {"classes": list(classes)}

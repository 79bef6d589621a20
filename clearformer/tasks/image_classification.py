"""The image-classification task, evaluated by accuracy."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clearformer.data.images import ImageCorpora
from clearformer.data.labels import number_classes
from clearformer.errors import DataError
from clearformer.evaluation.labels import confident_errors, evaluation, image_metrics
from clearformer.handles.image_classifier import ImageClassifier
from clearformer.handles.image_model import read_pixels
from clearformer.metric import ACCURACY, LOSS, MACRO_F1, Metric
from clearformer.objectives.image_classification import ImageClassification
from clearformer.tables import Tables
from clearformer.tasks.class_task import ClassTask, deciding_first
from clearformer.tasks.images import ImageTask, image_table
from clearformer.tasks.task import Pretrained

TOP5 = Metric("top5", "Top-5 accuracy")


class ImageClassificationTask(ClassTask, ImageTask):
    data = ImageCorpora
    objective = ImageClassification

    @classmethod
    def metrics(cls, recipe: Tables) -> tuple[Metric, ...]:
        return deciding_first((ACCURACY, TOP5, MACRO_F1, LOSS), recipe)

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

    def store(self) -> None:
        super().store()
        self.print_balance()

    def stored_classes(self, split: str) -> np.ndarray:
        return self.split(split).store.classes

    def outputs(self, model: nn.Module, split: str) -> tuple[Tensor, Tensor]:
        store = self.split(split).store
        logits = read_pixels(model, store.pixels, self.image, next(model.parameters()))
        return logits, torch.from_numpy(store.classes)

    def score(self, model: nn.Module, split: str) -> dict[str, Any]:
        return image_metrics(*self.balanced_outputs(model, split), self.classes or [])

    @classmethod
    def handle(cls, model: Pretrained) -> ImageClassifier:
        return cls.encoder(model, False)

    @classmethod
    def encoder(cls, model: Pretrained, unit: bool | None) -> ImageClassifier:
        handle = ImageClassifier(model.network, image_table(model), model.classes or [], model.name, bool(unit))
        handle.temperature = model.temperature
        return handle

    @classmethod
    def measure(cls, model: Pretrained) -> Callable[[np.ndarray], Tensor]:
        return cls.handle(model).logits

    @classmethod
    def summarise(
        cls,
        model: Pretrained,
        measured: Tensor,
        images: Sequence[tuple[str, str]],
        where: str,
        errors: int = 0,
        calibrate: bool = False,
    ) -> dict[str, Any]:
        """Return the metrics of `evaluation.labels.evaluation`, and `errors` if there are any."""
        classes = model.classes or []
        labels = torch.from_numpy(number_classes([label for _, label in images], classes, where))
        temperature = cls.calibrate(model) if calibrate else model.temperature
        metrics = evaluation(measured, labels, classes, image_metrics, temperature)
        if errors:
            metrics["errors"] = confident_errors(
                measured, labels, classes, errors, lambda i: {"image": images[i][0]}, temperature
            )
        return metrics

"""Labelled pictures to a classifier, judged by how often it is right."""

from typing import Any

import torch
from torch import nn

from clearformer.data.image_store import ImageStore
from clearformer.errors import DataError
from clearformer.evaluation.labels import score_pictures
from clearformer.handles.image_model import read_pixels
from clearformer.recipe import Recipe
from clearformer.tasks.pictures import PictureTask


class ImageClassificationTask(PictureTask):
    metrics = ("accuracy", "top5", "loss")

    def find_classes(self) -> list[str]:
        source = self.recipe.data.source("train")
        classes: list[str] = source.classes()
        if len(classes) < 2:
            raise DataError(
                f"{source.path}: every picture is of one class, `{classes[0]}`",
                "there must be two or more; in a folder of pictures each has a folder of its own",
            )
        return classes

    def fitted(self, recipe: Recipe) -> Recipe:
        return recipe.with_model(n_classes=len(self.classes))

    def measure(self, model: nn.Module, store: ImageStore) -> dict[str, Any]:
        assert self.recipe.image is not None
        scores = read_pixels(model, store.pixels, self.recipe.image, next(model.parameters()))
        return score_pictures(scores, torch.from_numpy(store.classes))

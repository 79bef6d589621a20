"""The reconstruction task of autoencoders, evaluated by squared error. Classes are stored only for plots of codes.

loss     the mean loss of the objective per image, with the same noise each time
error    the mean of (x̂ − x)² over all pixels, which have standard deviation 1; x̂ is decoded from codes without noise
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from clearformer.data.images import UnlabelledImageCorpora
from clearformer.errors import ConfigError
from clearformer.handles.image_autoencoder import ImageAutoencoder
from clearformer.metric import LOSS, Metric
from clearformer.objectives.reconstruction import Reconstruction
from clearformer.tables import Tables
from clearformer.tasks.images import ImageTask, image_table
from clearformer.tasks.task import Pretrained, device_of, mean_loss
from clearformer.training.precision import reseed

ERROR = Metric("error", "Mean squared error", lower_is_better=True)


class ReconstructionTask(ImageTask):
    data = UnlabelledImageCorpora
    objective = Reconstruction

    @classmethod
    def metrics(cls, recipe: Tables) -> tuple[Metric, ...]:
        return LOSS, ERROR

    @classmethod
    def check(cls, recipe: Tables, where: str) -> None:
        if recipe.image is not None and recipe.image.augment.mixup:
            raise ConfigError(
                f"{where}: image.augment.mixup mixes labels, but an autoencoder has no labels",
                "remove image.augment.mixup",
            )

    def read_classes(self) -> list[str]:
        """Collect the classes of all splits. Since classes are not predicted, a split may have any labels, or none."""
        sources = filter(None, map(self.recipe.data.source, self.recipe.data.splits))
        return list(dict.fromkeys(label for source in sources for label in source.classes()))

    @torch.no_grad()
    def score(self, model: nn.Module, split: str) -> dict[str, Any]:
        images, device = self.split(split), device_of(model)
        reseed(0, device)  # the training loop seeds every step again
        loss = mean_loss(self.build_objective(), model, images.in_order(), device)
        errors = ImageAutoencoder(model, self.image, self.classes or []).errors(images.store.pixels)
        return {"loss": loss, "error": float(errors.mean()), "images": len(images.store)}

    @classmethod
    def handle(cls, model: Pretrained) -> ImageAutoencoder:
        return cls.encoder(model, False)

    @classmethod
    def encoder(cls, model: Pretrained, unit: bool | None) -> ImageAutoencoder:
        return ImageAutoencoder(model.network, image_table(model), model.classes or [], model.name, bool(unit))

    @classmethod
    def measure(cls, model: Pretrained) -> Callable[[np.ndarray], Tensor]:
        return cls.handle(model).errors

    @classmethod
    def summarise(
        cls, model: Pretrained, measured: Tensor, images: Sequence[tuple[str, str]], where: str
    ) -> dict[str, Any]:
        """Return the mean squared error and the number of images."""
        return {"error": float(measured.mean()), "images": len(images)}

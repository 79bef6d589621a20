"""Pictures to an autoencoder, judged by how well it gives them back. Classes are kept, for whoever looks at codes.

loss     that of the objective, a picture, with the same noise each time
error    mean of (x̂ − x)² over all numbers, from codes without noise; pixels have a spread of 1
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from clearformer.data.batch import ImageBatch
from clearformer.data.image_store import ImageStore
from clearformer.errors import ConfigError
from clearformer.handles.image_autoencoder import ImageAutoencoder
from clearformer.tasks import tell_loss
from clearformer.tasks.pictures import PictureTask
from clearformer.training.loop import reseed


class ReconstructionTask(PictureTask):
    metrics = ("loss", "error")

    def find_classes(self) -> list[str]:
        """Of all splits, since none is asked for: some may have labels, and others not."""
        if self.recipe.image is not None and self.recipe.image.augment.mixup:
            raise ConfigError("[image.augment] mixup mixes answers, and an autoencoder gives none", "leave it out")
        sources = filter(None, map(self.recipe.data.source, self.recipe.data.splits))
        return list(dict.fromkeys(label for source in sources for label in source.classes()))

    @torch.no_grad()
    def measure(self, model: nn.Module, store: ImageStore) -> dict[str, Any]:
        assert self.recipe.image is not None
        device, image = next(model.parameters()).device, self.recipe.image
        reseed(0, device)  # a training that goes on seeds its next step by itself
        loss = tell_loss(self.recipe.build_objective(), model, in_turn(store, self.recipe.train.tokens), device)
        errors = ImageAutoencoder(model, image, self.classes).errors(store.pixels)
        return {"loss": loss, "error": float(errors.mean()), "images": len(store)}


def in_turn(store: ImageStore, n_rows: int) -> Iterator[ImageBatch]:
    for start in range(0, len(store), n_rows):
        yield store.batch(np.arange(start, min(start + n_rows, len(store))))

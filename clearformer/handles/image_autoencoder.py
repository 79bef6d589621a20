"""Pictures in, codes out, and pictures again: an autoencoder with its [image]."""

import numpy as np
from torch import Tensor

from clearformer.data.batch import ImageBatch
from clearformer.handles.image_model import ImageModel


class ImageAutoencoder(ImageModel):
    """`load` makes one from the run folder of an autoencoder; its vectors are codes."""

    def reconstruct(self, pixels: np.ndarray) -> Tensor:
        """uint8 (N, C, size, size) -> what is made of their codes, in 0 … 1 where the network is right."""
        return self.image.restore(self.read(self.model, pixels))

    def errors(self, pixels: np.ndarray) -> Tensor:
        """The mean of (x̂ − x)² over each picture, (N,); pixels have a spread of 1."""
        return self.read(self.error, pixels)

    def error(self, batch: ImageBatch) -> Tensor:
        return (self.model(batch) - batch.pixels).square().flatten(1).mean(1)

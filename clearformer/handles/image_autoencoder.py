"""An image autoencoder with its [image]: images to codes, and codes to images."""

import numpy as np
from torch import Tensor

from clearformer.data.batch import ImageBatch
from clearformer.handles.image_model import ImageModel


class ImageAutoencoder(ImageModel):
    """`load` makes one from the run folder of an autoencoder; its vectors are codes."""

    kind = "an image autoencoder"
    verbs = ("evaluate", "embed", "plot")

    def reconstruct(self, pixels: np.ndarray) -> Tensor:
        """uint8 (N, C, size, size) -> reconstructions in 0 … 1, as far as the network keeps to that range."""
        return self.image.restore(self.read(self.model, pixels))

    def errors(self, pixels: np.ndarray) -> Tensor:
        """The mean of (x̂ − x)² over each image, (N,); pixels are normalised to a standard deviation of 1."""
        return self.read(self.error, pixels)

    def error(self, batch: ImageBatch) -> Tensor:
        return (self.model(batch) - batch.pixels).square().flatten(1).mean(1)

"""An image autoencoder with its [image] settings: it encodes images as codes and reconstructs them."""

import numpy as np
from torch import Tensor

from clearformer.data.batch import ImageBatch
from clearformer.handles.image_model import ImageModel


class ImageAutoencoder(ImageModel):
    """An image autoencoder, as returned by `load`. Its embeddings are the codes."""

    kind = "an image autoencoder"
    verbs = ("evaluate", "embed", "plot")

    def reconstruct(self, pixels: np.ndarray) -> Tensor:
        """Reconstruct images, uint8 (N, C, size, size). Outputs are nominally in 0 … 1, but may leave that range."""
        return self.image.restore(self.read(self.model, pixels))

    def errors(self, pixels: np.ndarray) -> Tensor:
        """Return the error of each image, mean (x̂ − x)², (N,), on pixels normalised to a standard deviation of 1."""
        return self.read(self.error, pixels)

    def error(self, batch: ImageBatch) -> Tensor:
        return (self.model(batch) - batch.pixels).square().flatten(1).mean(1)

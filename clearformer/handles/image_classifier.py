"""An image classifier with its [image] settings and the names of its classes.

p(class | image) = softmax(logits / T),  T = 1 unless the model is calibrated
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from clearformer.data.sources import read_each
from clearformer.errors import DataError
from clearformer.handles.classifier import Prediction, as_columns, by_probability
from clearformer.handles.handle import renamed
from clearformer.handles.image_model import ImageModel
from clearformer.handles.inputs import File, one_or_many


class ImageClassifier(ImageModel):
    """An image classifier, loaded from a run on labelled images."""

    kind = "an image classifier"
    verbs = ("classify", "evaluate", "embed", "plot")
    main = "predict"
    default_top = 5
    json_key = "images"
    is_pair = False

    @one_or_many
    def predict(
        self,
        inputs: Sequence[File],
        pairs: Sequence[str] | None = None,
        top: int = 1,
        errors: list[DataError] | None = None,
    ) -> list[dict[str, Any]]:
        """Return one row per file: image, label, probability, and the `top` classes.

        A file that cannot be read raises an error. If `errors` is a list, the file is skipped and its error appended.
        """
        if pairs is not None:
            raise DataError(f"{self.name} classifies images, not pairs of texts", "give only image files")
        files = read_each(inputs, self.open, errors)
        predictions = self.classify([pixels for _, pixels in files])
        return [{"image": file_name(file), **as_columns(row, top)} for (file, _), row in zip(files, predictions)]

    @one_or_many
    def classify(self, images: Sequence[File]) -> list[list[Prediction]]:
        """Return all classes for each image (a file or an array of pixels), the most probable class first."""
        return by_probability(self.logits(self.pixels(images)), self.classes, self.temperature) if images else []

    def logits(self, pixels: np.ndarray) -> Tensor:
        """Compute the logits of images: uint8 (N, C, size, size) -> (N, K) on the CPU."""
        return self.read(self.model, pixels)

    scores = renamed("scores", "logits")


def file_name(file: File) -> str:
    """Return the name of a file, or the shape of pixels that have no name."""
    return f"pixels {file.shape}" if isinstance(file, np.ndarray) else str(file)

"""An image classifier with its [image] and the names of its classes.

p(class | image) = softmax(scores)
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from clearformer.data.sources import read_each
from clearformer.errors import DataError
from clearformer.handles.batching import refuse_string
from clearformer.handles.classifier import Verdict, as_columns, by_probability
from clearformer.handles.image_model import Image, ImageModel


class ImageClassifier(ImageModel):
    """`load` makes one from the run folder of a training on labelled images."""

    kind = "an image classifier"
    verbs = ("classify", "evaluate", "embed", "plot")
    default_top = 5
    json_key = "images"
    is_pair = False

    def predict(
        self,
        inputs: Sequence[str],
        pairs: Sequence[str] | None = None,
        top: int = 1,
        errors: list[DataError] | None = None,
    ) -> list[dict[str, Any]]:
        """A row for each file: image, label, probability, and the `top` classes.

        A file that cannot be read raises an error; with a list as `errors` it is left out, and the error added there.
        """
        refuse_string(inputs, "file")
        if pairs is not None:
            raise DataError(f"{self.name} judges images, not pairs of texts", "give image files alone")
        files = read_each(inputs, self.open, errors)
        verdicts = self.classify([pixels for _, pixels in files])
        return [{"image": str(file), **as_columns(some, top)} for (file, _), some in zip(files, verdicts)]

    def classify(self, images: Sequence[Image]) -> list[list[Verdict]]:
        """Every class for each of these files, or images already open, the likeliest first."""
        refuse_string(images, "file")
        return by_probability(self.scores(self.pixels(images)), self.classes) if images else []

    def scores(self, pixels: np.ndarray) -> Tensor:
        """The head's outputs before any softmax: uint8 (N, C, size, size) -> (N, K) on the CPU."""
        return self.read(self.model, pixels)

"""Pictures in, labels out: a classifier with its [image] and the names of its classes.

p(class | picture) = softmax(scores)
"""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from clearformer.handles.classifier import Verdict, ranked
from clearformer.handles.image_model import ImageModel, Seen


class ImageClassifier(ImageModel):
    """`load` makes one from the run folder of a training on labelled pictures."""

    is_pair = False

    def classify(self, pictures: Sequence[Seen]) -> list[list[Verdict]]:
        """Every class for each of these files, or pictures that are open, the likeliest first."""
        return ranked(self.scores(self.pixels(pictures)), self.classes) if pictures else []

    def scores(self, pixels: np.ndarray) -> Tensor:
        """What the head says, before any softmax: uint8 (N, C, size, size) -> (N, K) on the CPU."""
        return self.read(self.model, pixels)

"""embed: compute the vectors of texts or images."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clearformer.verbs.load import load_encoder


def embed(model: str | Path, texts: Sequence[str], *, unit: bool | None = None, device: str = "cpu") -> np.ndarray:
    """Return the vector of each text, (N, D): the mean over its tokens, scaled to length 1 for a sentence encoder.

    `unit` overrides the setting in the files of the model. For an image model `texts` are files, and a vector is the
    input of the classification head or the code of an autoencoder.
    """
    vectors: np.ndarray = load_encoder(model, device, unit).embed(texts).numpy()
    return vectors

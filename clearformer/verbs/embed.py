"""embed: texts or images as vectors."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clearformer.verbs.load import load_encoder


def embed(model: str | Path, texts: Sequence[str], *, unit: bool | None = None, device: str = "cpu") -> np.ndarray:
    """The vector of each text (N, D): the mean over its tokens, of length 1 where the model is a sentence encoder.

    `unit` overrides the model's own files. For an image network the texts are files, and a vector is the input of its
    head, or the code of an autoencoder.
    """
    vectors: np.ndarray = load_encoder(model, device, unit).embed(texts).numpy()
    return vectors

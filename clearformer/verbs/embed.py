"""embed: compute the vectors of texts or images."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clearformer.verbs.load import load_encoder


def embed(
    model: str | Path, texts: str | Path | Sequence[str | Path], *, unit: bool | None = None, device: str = "cpu"
) -> np.ndarray:
    """Return the vector of a text, (D,), or of each text of a list, (N, D).

    A vector is the mean over the tokens of a text, scaled to length 1 for a sentence encoder. `unit` overrides the
    setting in the files of the model. For an image model `texts` are files, and a vector is the input of the
    classification head or the code of an autoencoder.
    """
    vectors: np.ndarray = load_encoder(model, device, unit).embed(texts).numpy()
    return vectors

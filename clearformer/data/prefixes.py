"""Windows for a prefix LM, which reads the first part of a document in both directions and predicts the rest.

    tokens    ^  a1 a2 a3 a4        the first n = 3 tokens are context: all five positions may attend to them
    labels    -  -  a3 a4 EOS       tokens of the context are not predicted

n is drawn from 1 to the length of the document, or of its part inside the window. With n = 1 all tokens are predicted,
as in causal-lm. The draws for a row depend only on the seed and on the row's position in the stream.
"""

from dataclasses import replace

import numpy as np
import torch

from clearformer.data.batch import IGNORE, TextBatch
from clearformer.data.windows import Windows


class PrefixWindows(Windows):
    def count(self, places: np.ndarray) -> int:
        return self.batch(places).n_tokens

    def batch(self, places: np.ndarray, key: tuple[int, int] = (0, 0)) -> TextBatch:
        batch, columns = super().batch(places), torch.arange(self.length)
        is_real = batch.labels != IGNORE  # False past the end of the stream
        documents = (~is_real).long() if batch.documents is None else batch.documents
        positions = columns.expand_as(documents) if batch.positions is None else batch.positions
        rows = torch.arange(len(places))[:, None] * (len(self.store) + 1)
        _, which, lengths = torch.unique(rows + documents, return_inverse=True, return_counts=True)
        draws = torch.from_numpy(np.stack([self.draw(place) for place in places])).gather(1, columns - positions)
        n = 1 + (draws * lengths[which]).long()  # (B, T), the same throughout a document
        labels = batch.labels.where(positions >= n - 1, IGNORE)
        return replace(batch, labels=labels, context=is_real & (positions < n), n_tokens=-1)

    def draw(self, place: int) -> np.ndarray:
        """Draw a number from [0, 1) for each column (T,); only the draw at the start of each document is used."""
        return np.random.default_rng((self.seed, place)).random(self.length)

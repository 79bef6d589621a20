"""Windows whose documents are read in two parts: the first is given, and seen both ways; the second is predicted.

    tokens    ^  a1 a2 a3 a4        n = 3 of them are the prefix, which all five may see
    labels    -  -  a3 a4 EOS       what the prefix shows is not asked for

n is drawn from 1 to the length of the document, or of as much of it as the window holds; where it is 1, all of it is
predicted, as in causal-lm. What is drawn for a row is a function of the seed and of the row's place alone.
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
        is_real = batch.labels != IGNORE  # else it lies past the stream's end
        documents = (~is_real).long() if batch.documents is None else batch.documents
        positions = columns.expand_as(documents) if batch.positions is None else batch.positions
        rows = torch.arange(len(places))[:, None] * len(self.store.offsets)
        _, which, lengths = torch.unique(rows + documents, return_inverse=True, return_counts=True)
        luck = torch.from_numpy(np.stack([self.draw(place) for place in places])).gather(1, columns - positions)
        n = 1 + (luck * lengths[which]).long()  # (B, T), the same throughout a document
        labels = batch.labels.where(positions >= n - 1, IGNORE)
        return replace(batch, labels=labels, prefix=is_real & (positions < n), n_tokens=-1)

    def draw(self, place: int) -> np.ndarray:
        """A number from 0 to 1 for each column (T,), of which the first of each document counts."""
        return np.random.default_rng((self.seed, place)).random(self.length)

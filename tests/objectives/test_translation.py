import math

import pytest
import torch
import torch.nn.functional as F

from clearformer.data.batch import IGNORE, Batch
from clearformer.objectives.translation import Translation, TranslationConfig


class Certain(torch.nn.Module):
    """Says word 2 everywhere, with logit 7 against 0."""

    def hidden(self, batch):
        return F.one_hot(torch.full_like(batch.target, 2), 3).double() * 7.0

    def head(self, hidden):
        return hidden


def test_objective_gives_sum_and_count():
    labels = torch.tensor([[2, 2, IGNORE], [2, IGNORE, IGNORE]])
    batch = Batch(torch.zeros(2, 1, dtype=torch.long), torch.ones(2, 1, dtype=torch.bool), labels.clamp(min=0), labels)
    total, n_tokens = Translation(TranslationConfig(label_smoothing=0.0))(Certain(), batch)
    assert n_tokens == 3
    assert total.item() == pytest.approx(3 * math.log1p(2 * math.exp(-7)))

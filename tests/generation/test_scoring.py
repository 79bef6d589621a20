from math import log

import torch
from torch import Tensor, nn

from clearformer.data.batch import IGNORE, Batch
from clearformer.generation.scoring import target_logprobs


class Fixed(nn.Module):
    """Gives the word v at position t the probability below, whatever the source."""

    table = torch.tensor([[0.5, 0.2, 0.3], [0.1, 0.7, 0.2]])  # (T, V)

    def forward(self, batch: Batch) -> Tensor:
        return self.table.log().expand(len(batch), -1, -1) + 11.0  # logits need not be normalised


def test_log_probabilities_of_the_true_words_are_summed_by_hand() -> None:
    source = torch.zeros(2, 5, dtype=torch.long)
    labels = torch.tensor([[2, 1], [0, IGNORE]])
    scores = target_logprobs(Fixed(), Batch(source, source == 0, labels.clamp(min=0), labels))
    torch.testing.assert_close(scores, torch.tensor([log(0.3 * 0.7), log(0.5)]))

from math import log

import pytest
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


@pytest.mark.parametrize(
    ("given", "kept"),
    [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)],
)
def test_a_wider_type_is_kept_and_a_narrower_one_widened(
    given: torch.dtype, kept: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fixed, "table", Fixed.table.to(given))
    source, labels = torch.zeros(1, 5, dtype=torch.long), torch.tensor([[2, 1]])
    assert target_logprobs(Fixed(), Batch(source, source == 0, labels, labels)).dtype == kept

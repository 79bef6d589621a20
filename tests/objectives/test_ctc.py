"""CTC against the sum over every path there is."""

from itertools import groupby, product

import pytest
import torch

from clearformer.data.batch import IGNORE
from clearformer.objectives.ctc import ctc_loss

T, V = 5, 2
BLANK = V


def reads(path: tuple[int, ...]) -> list[int]:
    return [token for token, _ in groupby(path) if token != BLANK]


def by_hand(logits: torch.Tensor, said: list[int]) -> torch.Tensor:
    """− log of the probability of all paths that read as what is said."""
    p = logits.softmax(-1)
    paths = [path for path in product(range(V + 1), repeat=len(logits)) if reads(path) == said]
    return -torch.stack([torch.stack([p[t, k] for t, k in enumerate(path)]).prod() for path in paths]).sum().log()


@pytest.mark.parametrize("said", [[0], [1, 0], [0, 0], [1, 1, 0], [0, 1, 0, 1]])
def test_every_path_that_reads_as_it_is_counted(said: list[int]) -> None:
    logits = torch.randn(1, T, V + 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = by_hand(logits[0], said)
    torch.testing.assert_close(ctc_loss(logits, torch.tensor([T]), torch.tensor([said])), expected)


def test_rows_are_summed_and_padding_is_no_part_of_them() -> None:
    torch.manual_seed(0)
    logits = torch.randn(3, T, V + 1, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[1, 0, 1], [0, IGNORE, IGNORE], [1, 1, IGNORE]])
    lengths = torch.tensor([5, 2, 4])
    total = ctc_loss(logits, lengths, labels)
    rows = [by_hand(logits[i, :n], [k for k in labels[i].tolist() if k >= 0]) for i, n in enumerate(lengths.tolist())]
    torch.testing.assert_close(total, torch.stack(rows).sum())
    (ours,) = torch.autograd.grad(total, logits)
    (theirs,) = torch.autograd.grad(torch.stack(rows).sum(), logits)
    torch.testing.assert_close(ours, theirs)
    assert not ours[1, 2:].any()


def test_a_recording_too_short_for_its_transcript_teaches_nothing() -> None:
    logits = torch.randn(2, T, V + 1, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[0, 0, 0, 0], [0, 1, IGNORE, IGNORE]])  # four alike need three blanks between them
    total = ctc_loss(logits, torch.tensor([T, T]), labels)
    torch.testing.assert_close(total, ctc_loss(logits[1:], torch.tensor([T]), labels[1:, :2]))
    total.backward()
    assert logits.grad is not None
    assert not logits.grad[0].any()

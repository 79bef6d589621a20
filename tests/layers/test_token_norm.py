"""Batch norm over the real tokens of a batch: the equation, padding that does not matter, and running statistics."""

import pytest
import torch
from torch import Tensor, nn

from clearformer.layers.token_norm import TokenBatchNorm, batch_norm
from clearformer.training.statistics import set_training, statistics

B, T, D = 3, 5, 7
LENGTHS = torch.tensor([5, 2, 3])
REAL = torch.arange(T) < LENGTHS[:, None]


def x(seed: int = 0) -> Tensor:
    return torch.randn(B, T, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 5 + 3


def norm() -> TokenBatchNorm:
    made = TokenBatchNorm(D).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(1))
    return made


def test_by_hand() -> None:
    """The values 1, 3 and 8 of one feature have mean 4 and variance 26/3; 100 is padding."""
    values = torch.tensor([[1.0, 3], [8, 100]])[:, :, None]
    y = batch_norm(values, torch.tensor([[True, True], [True, False]]), torch.tensor([2.0]), torch.tensor([7.0]), 0.0)
    deviation = (26 / 3) ** 0.5
    torch.testing.assert_close(y[:, :, 0].flatten()[:3], 7 + 2 * torch.tensor([-3.0, -1, 4]) / deviation)


def test_it_computes_the_equation_over_real_tokens() -> None:
    made = norm()
    made.real = REAL
    torch.testing.assert_close(made(x()), batch_norm(x(), REAL, made.weight, made.bias))


def test_without_padding_it_is_torchs() -> None:
    ours, theirs = norm(), nn.BatchNorm1d(D).double()
    theirs.load_state_dict(ours.state_dict())
    for real in (None, torch.ones(B, T, dtype=torch.bool)):
        ours.real = real
        torch.testing.assert_close(ours(x()), theirs(x().flatten(0, 1)).view(B, T, D))
        for name, buffer in ours.named_buffers():
            torch.testing.assert_close(buffer, theirs.get_buffer(name))


def test_padding_changes_neither_output_nor_statistics() -> None:
    results = []
    for noise in (0.0, 1e6):
        made = norm()
        made.real = REAL
        y = made(x() + noise * ~REAL[:, :, None])
        results.append((y[REAL], made.running_mean, made.running_var))
    for one, other in zip(*results):
        torch.testing.assert_close(one, other)


def test_at_inference_it_is_a_line_for_each_feature() -> None:
    made = norm()
    made.real = REAL
    made(x())
    made.eval()
    factor, shift = made.line()
    torch.testing.assert_close(made(x(1)), x(1) * factor + shift)
    assert made(x(1)[:1, :1]).equal(made(x(1))[:1, :1]), "other tokens do not matter"


@pytest.mark.parametrize("learns", [True, False])
def test_the_trainer_knows_it_as_a_batch_norm(learns: bool) -> None:
    model = nn.Sequential(norm())
    model.requires_grad_(learns)
    set_training(model)
    assert model[0].training is learns
    assert [name for name, _ in statistics(model)] == (["0.running_mean", "0.running_var"] if learns else [])

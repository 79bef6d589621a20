"""The notes' sizes, against what torch's layers return."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from clearformer.layers.geometry import ReceptiveField, output_size, same_padding


@pytest.mark.parametrize(
    ("N", "F", "S", "P", "found"),
    [(227, 11, 4, 0, 55), (55, 3, 2, 0, 27), (27, 5, 1, 2, 27), (27, 3, 2, 0, 13), (13, 3, 1, 1, 13), (13, 3, 2, 0, 6)],
)
def test_alexnets_sizes(N: int, F: int, S: int, P: int, found: int) -> None:
    assert output_size(N, F, S, P) == found


@pytest.mark.parametrize("N", [7, 11, 13])
@pytest.mark.parametrize(("size", "stride", "padding"), [(1, 1, 0), (2, 2, 0), (3, 2, 1), (5, 3, 2), (7, 1, 0)])
def test_torch_agrees(N: int, size: int, stride: int, padding: int) -> None:
    x, found = torch.zeros(1, 1, N, N), output_size(N, size, stride, padding)
    assert F.conv2d(x, torch.zeros(1, 1, size, size), stride=stride, padding=padding).shape[2:] == (found, found)


@pytest.mark.parametrize(("F", "S", "N"), [(3, 1, 5), (5, 1, 7), (3, 3, 11), (4, 2, 8), (7, 5, 13)])
def test_same_padding_keeps_the_size(F: int, S: int, N: int) -> None:
    assert output_size(N, F, S, same_padding(F, S, N)) == N


def test_half_a_pixel_is_not_to_be_had() -> None:
    with pytest.raises(ValueError, match="a filter of size 4 cannot keep the size"):
        same_padding(4)


def test_a_receptive_field_is_where_gradients_arrive() -> None:
    """Of one number in the middle, through layers of which each has its own size and stride."""
    layers = [(3, 1), (5, 2), (2, 3), (3, 2)]
    net = nn.Sequential(*(nn.Conv2d(1, 1, size, stride, bias=False) for size, stride in layers)).double()
    field = ReceptiveField()
    for layer, (size, stride) in zip(net, layers):
        nn.init.ones_(layer.weight)  # type: ignore[arg-type]
        field = field.after(size, stride)
    x = torch.randn(1, 1, 71, 71, dtype=torch.float64, requires_grad=True)
    y = net(x)
    seen = []
    for column in (1, 2):
        (gradient,) = torch.autograd.grad(y[0, 0, 2, column], x, retain_graph=True)
        seen.append(gradient[0, 0].any(0).nonzero()[:, 0])
    assert len(seen[0]) == field.size == 1 + 2 * 1 + 4 * 1 + 1 * 2 + 2 * 6
    assert seen[1][0] - seen[0][0] == field.step == 12


def test_two_filters_of_three_see_as_far_as_one_of_five_and_three_as_one_of_seven() -> None:
    assert ReceptiveField().after(3).after(3) == ReceptiveField().after(5)
    assert ReceptiveField().after(3).after(3).after(3) == ReceptiveField().after(7)

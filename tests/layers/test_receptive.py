"""How far a layer sees, by rule and by where its gradient arrives."""

import torch
from torch import Tensor, nn

from clearformer.layers.conv import Conv
from clearformer.layers.geometry import ReceptiveField
from clearformer.layers.inception import Inception
from clearformer.layers.receptive import ReceptiveFields
from clearformer.layers.residual import Residual

N = 47


def reach(y: Tensor, x: Tensor) -> int:
    """The columns of x that the number in the middle of y depends on."""
    middle = y[0, :, y.size(2) // 2, y.size(3) // 2] if y.dim() == 4 else y[0]
    (gradient,) = torch.autograd.grad(middle.sum(), x)
    columns = gradient[0].abs().sum((0, 1)).nonzero()[:, 0]
    return int(columns[-1] - columns[0]) + 1


def look(net: nn.Module, channels: int = 2) -> tuple[Tensor, Tensor, ReceptiveField | None]:
    torch.manual_seed(0)
    x = torch.rand(1, channels, N, N, requires_grad=True)
    with ReceptiveFields(x) as receptive:
        y = net.eval()(x)
    return y, x, receptive.of(y)


def positive(net: nn.Module) -> nn.Module:
    """Weights of one sign, so that no relu hides a pixel."""
    for parameter in net.parameters():
        nn.init.uniform_(parameter, 0.1, 0.2)
    return net


def test_a_chain_of_filters_and_pools() -> None:
    net = nn.Sequential(Conv(2, 3, 5, stride=2, norm=False), nn.AvgPool2d(3, stride=2), Conv(3, 2, 3, norm=False))
    y, x, field = look(positive(net))
    assert field == ReceptiveField(5 + 2 * 2 + 2 * 4, 4)
    assert reach(y, x) == field.size


def test_where_branches_join_the_widest_decides() -> None:
    net = nn.Sequential(Residual(2, 4, 2, "basic", "padding"), Residual(4, 4, 1, "bottleneck", "projection"))
    y, x, field = look(positive(net))
    assert field == ReceptiveField(1 + 2 + 2 * 2 + 2 * 2, 2)
    assert reach(y, x) == field.size
    net = Inception(2, (1, 2, 1, 2, 1, 1), lambda *sizes: Conv(*sizes, norm=False))
    y, x, field = look(positive(net))
    assert field == ReceptiveField(5, 1)
    assert reach(y, x) == 5


def test_a_mean_and_a_dense_layer_see_all() -> None:
    for last in (nn.AdaptiveAvgPool2d(1), nn.Identity()):
        net = nn.Sequential(Conv(2, 3, 3, stride=3, padding=0, norm=False), last, nn.Flatten())
        y, x, field = look(positive(net))
        assert field is not None
        assert field.size == N // 3 * 3 == reach(y, x)
    y, x, field = look(nn.Sequential(nn.AdaptiveAvgPool2d(5)))
    assert field == ReceptiveField(N - 4 * 9, 9)


def test_what_is_not_made_of_the_picture_sees_nothing() -> None:
    x = torch.rand(1, 1, 3, 3)
    with ReceptiveFields(x) as receptive:
        assert receptive.of(torch.ones(2) + 1) is None
        assert receptive.of(x * 2) == ReceptiveField()

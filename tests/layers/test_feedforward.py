from math import erf, exp, sqrt

import pytest
import torch
from torch import nn

from clearformer.layers.feedforward import ACTIVATIONS, GATED, FeedForward, GatedFeedForward, feed_forward, gelu

from ..onednn import programs

B, T, D, F = 2, 3, 5, 7


def test_relu_by_hand() -> None:
    """W1 x + b1 = (2 − 3 + 1, −2 + 3 + 1) = (0, 2); with x negated (2, 0) after ReLU."""
    net = FeedForward(2, 2)
    with torch.no_grad():
        net.up.weight.copy_(torch.tensor([[2.0, -1], [-2, 1]]))
        net.up.bias.copy_(torch.tensor([1.0, 1]))
        net.down.weight.copy_(torch.tensor([[1.0, 10], [100, 0]]))
        net.down.bias.copy_(torch.tensor([0.5, 0]))
    assert net(torch.tensor([[1.0, 3], [-1, -3]])).tolist() == [[20.5, 0], [2.5, 200]]


def test_swiglu_by_hand() -> None:
    """gate 2x, value 3x, out 5: at x = 1 that is 5 · silu(2) · 3."""
    net = GatedFeedForward(1, 1).double()
    with torch.no_grad():
        net.up.weight.copy_(torch.tensor([[2.0], [3.0]]))
        net.down.weight.copy_(torch.tensor([[5.0]]))
    assert net(torch.ones(1, 1).double()).item() == pytest.approx(5 * 2 / (1 + exp(-2)) * 3)


@pytest.mark.parametrize("shape", [(7,), (5, 7), (2, 3, 7), (1, 1, 7)])
def test_gelu_is_x_times_the_probability_of_less(shape: tuple[int, ...]) -> None:
    """x Φ(x), and its derivative Φ(x) + x φ(x), in the layout of x."""
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    y = gelu(x)
    y.sum().backward()
    phi = torch.tensor([(1 + erf(value / sqrt(2))) / 2 for value in x.flatten().tolist()], dtype=x.dtype).view(shape)
    density = (-(x.detach() ** 2) / 2).exp() / sqrt(2 * torch.pi)
    torch.testing.assert_close(y.detach(), x.detach() * phi)
    torch.testing.assert_close(x.grad, phi + x.detach() * density)
    assert y.is_contiguous()


@pytest.mark.parametrize("activation", ["gelu", "geglu"])
def test_no_program_is_compiled_for_a_shape(activation: str) -> None:
    """oneDNN's would stay in the middle of a training's memory, and each is used as long as its shape is."""
    code = f"""
import torch
from clearformer.layers.feedforward import feed_forward
net = feed_forward(5, 7, "{activation}", 0.0, bias=True)
for n_rows in range(2, 13):
    net(torch.randn(n_rows, 3, 5)).sum().backward()
"""
    assert programs(code) == []


@pytest.mark.parametrize("activation", [*ACTIVATIONS, *GATED])
def test_the_name_chooses_the_network(activation: str) -> None:
    net = feed_forward(D, F, activation, 0.0, bias=False)
    assert type(net) is (GatedFeedForward if activation in GATED else FeedForward)
    assert net(torch.randn(B, T, D)).shape == (B, T, D)
    n_features = 3 * F if activation in GATED else 2 * F
    assert sum(p.numel() for p in net.parameters()) == n_features * D


@pytest.mark.parametrize("activation", [*ACTIVATIONS, *GATED])
def test_each_position_thinks_by_itself(activation: str) -> None:
    net, x = feed_forward(D, F, activation, 0.0, bias=True).double(), torch.randn(B, T, D).double()
    alone = torch.stack([net(x[:, t]) for t in range(T)], dim=1)
    torch.testing.assert_close(net(x), alone)


@pytest.mark.parametrize("kind", [FeedForward, GatedFeedForward])
def test_dropout_falls_on_the_features(kind: type[nn.Module]) -> None:
    net = kind(D, F, dropout=0.999999)  # all but surely every feature is dropped, and only the output's bias is left
    x = torch.randn(B, T, D)
    assert not net(x).allclose(net.eval()(x))
    bias = net.get_submodule("down").bias
    expected = torch.zeros(B, T, D) if bias is None else torch.as_tensor(bias).expand(B, T, D)
    assert net.train()(x).equal(expected)

import pytest
import torch
from torch import nn

from clearformer.layers.conv import Conv
from clearformer.layers.residual import Padded, Residual

B, C, O, N = 2, 3, 8, 7


def test_a_block_that_learnt_nothing_passes_what_it_is_given() -> None:
    """f = 0 is easier to learn than f(x) = x: with shortcuts the block is then a relu, without them it is mute."""
    x = torch.randn(B, O, N, N)
    for block in ("basic", "bottleneck"):
        for shortcut, wanted in (("projection", x.relu()), ("padding", x.relu()), ("none", torch.zeros_like(x))):
            residual = Residual(O, O, 1, block, shortcut).eval()  # type: ignore[arg-type]
            nn.init.zeros_(residual.path[-1].norm.weight)  # type: ignore[union-attr,arg-type]
            assert residual(x).equal(wanted)


def test_option_a_by_hand() -> None:
    """Every second pixel, one channel of zeros before and two behind."""
    x = torch.arange(2 * 9.0).view(1, 2, 3, 3)
    y = Padded(3, 2)(x)
    assert y.shape == (1, 5, 2, 2)
    assert y[0, 1].tolist() == [[0, 2], [6, 8]]
    assert y[0, 2].tolist() == [[9, 11], [15, 17]]
    assert not y[0, [0, 3, 4]].any()


@pytest.mark.parametrize("block", ["basic", "bottleneck"])
@pytest.mark.parametrize("shortcut", ["projection", "padding", "none"])
def test_a_stride_halves_the_sides(block: str, shortcut: str) -> None:
    residual = Residual(C, O, 2, block, shortcut)  # type: ignore[arg-type]
    assert residual(torch.randn(B, C, N, N)).shape == (B, O, 4, 4)
    learnt = {name.split(".")[0] for name, _ in residual.named_parameters()}
    assert learnt == ({"path", "shortcut"} if shortcut == "projection" else {"path"})


def test_a_convolution_then_its_norm_then_relu() -> None:
    conv = Conv(C, O, 3).double()
    x = torch.randn(B, C, N, N).double() * 5 + 1
    y = conv(x)
    assert conv.conv.bias is None
    assert y.shape == (B, O, N, N)
    assert (y >= 0).all()
    conv.relu = False
    torch.testing.assert_close(conv(x).mean((0, 2, 3)), torch.zeros(O).double(), atol=1e-12, rtol=0)
    plain = Conv(C, O, 3, norm=False, relu=False).double()
    assert plain.norm is None
    assert plain(x).equal(plain.conv(x))
    assert plain.conv.bias is not None

import pytest
import torch

from clearformer.layers.conv import Conv
from clearformer.layers.geometry import ReceptiveField
from clearformer.lens.shifts import compare, measure


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_convolution_moves_along_with_multiples_of_its_stride(d: int, stride: int) -> None:
    """Exactly, away from edges; and with no other shift."""
    torch.manual_seed(0)
    conv, pixels = Conv(2, 3, 5, stride).double().eval(), torch.randn(2, 2, 23, 23).double()
    with torch.no_grad():
        still, moved = conv(pixels), conv(pixels.roll((d, d), (2, 3)))
    along, stayed = compare(still, moved, d, ReceptiveField().after(5, stride))
    if d % stride == 0:
        assert along == pytest.approx(1, abs=1e-12)
    else:
        assert along < 0.9
    assert stayed < 0.9


def test_edges_are_left_out_only_where_something_remains() -> None:
    maps = torch.arange(25.0).view(1, 1, 5, 5)
    along, stayed = compare(maps, maps.roll((1, 1), (2, 3)), 1, ReceptiveField(99, 1))
    assert along == pytest.approx(1)
    assert stayed == pytest.approx(1)  # a plane stays the same plane, but for its height


def test_a_network_layer_by_layer(handle, sample) -> None:
    """Up to the stride the maps of a ResNet move along with every shift, and after it with even ones."""
    resnet = handle("resnet")
    told = measure(resnet, sample(resnet, 3))
    assert (told["shifts"], len(told["hidden"])) == ([1, 2, 4], 3)
    stem, last = told["layers"]["stem"], told["layers"]["stages.1.0"]
    assert (stem["step"], stem["sees"], last["step"]) == (1, 3, 2)
    assert stem["equivariance"] == pytest.approx([1, 1, 1])
    odd, *even = last["equivariance"]
    assert odd < 0.95
    assert even == pytest.approx([1, 1])
    assert max(stem["invariance"]) < 0.9 < min(told["hidden"])  # a mean over all places hardly feels it


def test_patches_move_along_by_whole_patches(handle, sample) -> None:
    vit = handle("vit", size=28)
    told = measure(vit, sample(vit, 3))["layers"]
    assert told["patches.conv"]["step"] == told["encoder.blocks.1"]["step"] == 7
    assert max(told["patches.conv"]["equivariance"]) < 0.9  # by 1, 2 and 4 pixels
